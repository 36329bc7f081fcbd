package source

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// around finds out soon which brokers are left while some of them fail. The client's own metadata loop asks one broker at a time, and one
// that says nothing costs it up to ten seconds, again and again. Requests beside it go to the brokers next in turn, and a broker that the
// first answer no longer lists is given up at once with everything that waits for it, that loop's request included (franz-go 1.22.3:
// Client.broker, Client.updateMetadataBrokers). It is one client's. Its lock is held over no call but one that counts the client's brokers.
type around struct {
	mu       sync.Mutex
	suspects map[int32]time.Time // brokers that failed as leaders, by node id, and when last
	open     int
	tries    int // since the last answer
	next     time.Time
}

const (
	// aroundAtOnce bounds the requests under way, aroundTimeout each of them.
	aroundAtOnce  = 3
	aroundTimeout = 3 * time.Second
	// The pauses between requests grow while nobody answers: a cluster that is away is not dialled any faster than without them.
	aroundBase, aroundLimit = 500 * time.Millisecond, 10 * time.Second
	// suspectFor is how long after its last failure a broker is looked around for.
	suspectFor = 30 * time.Second
)

func (a *around) suspect(node int32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.suspects == nil {
		a.suspects = map[int32]time.Time{}
	}
	a.suspects[node] = time.Now()
}

func (a *around) clear(node int32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.suspects, node)
}

// due reports whether a request should begin now, and counts it as begun. known says how many brokers the client knows: where all of them
// fail there is nobody to ask, and the client's own attempts are enough.
func (a *around) due(now time.Time, known func() int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for node, last := range a.suspects {
		if now.Sub(last) > suspectFor {
			delete(a.suspects, node)
		}
	}
	if len(a.suspects) == 0 {
		a.tries = 0
		return false
	}
	if a.open >= aroundAtOnce || now.Before(a.next) || len(a.suspects) >= known() {
		return false
	}
	a.tries++
	a.next = now.Add(backoff(a.tries, aroundBase, aroundLimit))
	a.open++
	return true
}

// ask makes one request. A broker that is not listed leads nothing any more; the client has already given it up.
func (a *around) ask(ctx context.Context, client *kgo.Client) {
	ctx, cancel := context.WithTimeout(ctx, aroundTimeout)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{} // none; nil would be all
	resp, err := req.RequestWith(ctx, client)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open--
	if err != nil || len(resp.Brokers) == 0 {
		return
	}
	a.tries = 0
	listed := make(map[int32]bool, len(resp.Brokers))
	for _, b := range resp.Brokers {
		listed[b.NodeID] = true
	}
	for node := range a.suspects {
		if !listed[node] {
			delete(a.suspects, node)
		}
	}
}

// lookAround begins a request if one is due. Run joins it.
func (s *Source) lookAround(ctx context.Context, sess *session) {
	if sess.around.due(time.Now(), func() int { return len(sess.client.DiscoveredBrokers()) }) {
		s.lookups.Go(func() { sess.around.ask(ctx, sess.client) })
	}
}
