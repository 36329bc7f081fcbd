package pipeline

import "context"

// starting reports whether refusals end the worker: until it has been ready once, and always in a bounded run.
func (w *worker) starting() bool { return w.bounded != nil || !w.ready.Load() }

// startupTimedOut is the exit for a worker that was not ready within STARTUP_TIMEOUT, by what it waits for.
func (r *Worker) startupTimedOut(w *worker) error {
	for _, o := range w.owners.all() {
		if v := o.view.Load(); v.state == stateRestoring || v.state == stateRefused {
			return exitf(ExitCheckpoint, "not ready within STARTUP_TIMEOUT: %s is %s: %s", o.p, v.state, v.reason)
		}
	}
	reasons := r.ready(context.Background())
	if len(reasons) > 0 && reasons[0].Check == "table" {
		return exitf(ExitTable, "not ready within STARTUP_TIMEOUT: %s", reasons[0].Reason)
	}
	why := "the group gave no assignment"
	if len(reasons) > 0 {
		why = reasons[0].Reason
	}
	return exitf(ExitSource, "not ready within STARTUP_TIMEOUT: %s", why)
}
