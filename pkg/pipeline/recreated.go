package pipeline

import "sync"

// recreations remembers which topics were seen to be created again while this worker ran, by their new id. Discovery's goroutine adds,
// owners look.
type recreations struct {
	mu  sync.Mutex
	ids map[string]string
}

func (r *recreations) add(topic, id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ids == nil {
		r.ids = map[string]string{}
	}
	r.ids[topic] = id
}

func (r *recreations) has(topic, id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return id != "" && r.ids[topic] == id
}
