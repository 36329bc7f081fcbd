package starrockstest

import (
	"fmt"
	"time"
)

// FEURL is the base URL of an FE ("http://localhost:port"), counted from 1.
func (c *Cluster) FEURL(fe int) string { return c.fes[fe-1].http.url() }

// FEURLs are the base URLs of all FEs.
func (c *Cluster) FEURLs() []string {
	var out []string
	for _, f := range c.fes {
		out = append(out, f.http.url())
	}
	return out
}

// BEURL is the base URL of the BE ("http://127.0.0.1:port").
func (c *Cluster) BEURL() string { return c.be.url() }

// MySQLAddr is the MySQL address of an FE ("localhost:port"), counted from 1.
func (c *Cluster) MySQLAddr(fe int) string { return c.fes[fe-1].mysql.advertised }

// MySQLAddrs are the MySQL addresses of all FEs.
func (c *Cluster) MySQLAddrs() []string {
	var out []string
	for _, f := range c.fes {
		out = append(out, f.mysql.advertised)
	}
	return out
}

// SetLeader makes another FE the leader.
func (c *Cluster) SetLeader(fe int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leader = fe
}

// SetBackends changes how many BEs are alive; 0 is "No backend alive".
func (c *Cluster) SetBackends(n int) {
	c.engine.locked(func() {
		c.engine.backends = n
		c.engine.touch()
	})
}

// StopFE takes an FE down: both its ports refuse connections and open ones are cut. StartFE brings it back.
func (c *Cluster) StopFE(fe int) {
	c.fes[fe-1].http.stop()
	c.fes[fe-1].mysql.stop()
}

// StartFE opens the ports of a stopped FE again.
func (c *Cluster) StartFE(fe int) error {
	if err := c.fes[fe-1].http.start(); err != nil {
		return err
	}
	return c.fes[fe-1].mysql.start()
}

// StopMySQL takes down only the MySQL port of an FE; StartFE brings it back.
func (c *Cluster) StopMySQL(fe int) { c.fes[fe-1].mysql.stop() }

// CutMySQL closes every open MySQL connection of an FE; new ones are welcome.
func (c *Cluster) CutMySQL(fe int) { c.fes[fe-1].mysql.cut() }

// BlackholeFE makes connecting to an FE hang (its packets are dropped), until StartFE. Open connections are cut.
func (c *Cluster) BlackholeFE(fe int) error {
	f := c.fes[fe-1]
	if err := f.http.blackhole(); err != nil {
		return err
	}
	return f.mysql.blackhole()
}

// BlackholeBE does the same to the BE, until StartBE.
func (c *Cluster) BlackholeBE() error { return c.be.blackhole() }

// StopBE takes the BE's listener down, while FEs go on redirecting to it. Loads in flight end as if the BE had lost its
// clients. StartBE brings it back.
func (c *Cluster) StopBE() { c.be.stop() }

// StartBE opens the BE's port again.
func (c *Cluster) StartBE() error { return c.be.start() }

// LagFE lets the reads of an FE trail by the last versions published loads per table, and by everything younger than
// age. Zero values end it. It needs Config.History.
func (c *Cluster) LagFE(fe, versions int, age time.Duration) {
	c.needHistory()
	c.engine.locked(func() {
		f := c.fes[fe-1]
		f.lagVersions, f.lagTime = versions, age
	})
}

// FreezeFE lets an FE answer reads from now's state until ThawFE. It needs Config.History.
func (c *Cluster) FreezeFE(fe int) {
	c.needHistory()
	c.engine.locked(func() {
		frozen := map[*table]int64{}
		c.engine.eachTable(func(_ *database, t *table) { frozen[t] = t.version })
		c.fes[fe-1].frozen = frozen
	})
}

// ThawFE ends FreezeFE.
func (c *Cluster) ThawFE(fe int) {
	c.engine.locked(func() { c.fes[fe-1].frozen = nil })
}

func (c *Cluster) needHistory() {
	if c.cfg.History == 0 {
		panic("starrockstest: a lagging FE needs Config.History")
	}
}

// notYet is what the FE has not seen at now; nil: nothing is missing.
func (f *frontend) notYet(now time.Time) func(*table, undo) bool {
	if f.frozen == nil && f.lagVersions == 0 && f.lagTime == 0 {
		return nil
	}
	return func(t *table, u undo) bool {
		if f.frozen != nil && u.version > f.frozen[t] {
			return true
		}
		return u.version > t.version-int64(f.lagVersions) || f.lagTime > 0 && now.Sub(u.at) < f.lagTime
	}
}

// ScriptAlter says how the next schema change jobs go, in order; later ones take Config.AlterDuration.
func (c *Cluster) ScriptAlter(scripts ...AlterScript) {
	c.engine.locked(func() { c.engine.alters = append(c.engine.alters, scripts...) })
}

// SeedTxn makes a transaction with a label, as if another client had loaded nothing with it: PREPARE and PREPARED are
// RUNNING to a load of that label, COMMITTED and VISIBLE are FINISHED.
func (c *Cluster) SeedTxn(db, label string, state TxnState) error {
	var err error
	c.engine.locked(func() {
		now := time.Now()
		var t *txn
		if t, err = c.engine.begin(db, label, "stand-in", c.cfg.DefaultTimeout, now); err != nil {
			return
		}
		err = c.engine.force(t, state, now)
	})
	return err
}

// SetTxn moves the newest transaction of a label to a state, whatever the rules say; UNKNOWN forgets it. Rows it holds
// become visible with VISIBLE.
func (c *Cluster) SetTxn(db, label string, state TxnState) error {
	var err error
	c.engine.locked(func() {
		t := c.engine.txnByLabel(db, label)
		if t == nil {
			err = fmt.Errorf("no transaction has the label %s in %s", label, db)
			return
		}
		err = c.engine.force(t, state, time.Now())
	})
	return err
}

// Publish makes a load visible that PublishTimeout left COMMITTED.
func (c *Cluster) Publish(db, label string) error { return c.SetTxn(db, label, StateVisible) }

// force sets a state; under the lock.
func (e *engine) force(t *txn, state TxnState, now time.Time) error {
	switch state {
	case StateUnknown:
		e.forget(t)
	case StatePrepare:
		t.state = StatePrepare
	case StatePrepared:
		t.state, t.prepared = StatePrepared, now
	case StateAborted:
		e.abort(t, "User Aborted", now)
	case StateCommitted:
		t.state, t.committed, t.held = StateCommitted, now, true
	case StateVisible:
		t.held, t.publishAt = false, now
		if t.state != StateCommitted && t.state != StateVisible {
			t.state, t.committed = StateCommitted, now
		}
	default:
		return fmt.Errorf("unknown transaction state %q", state)
	}
	e.touch()
	e.advance(now)
	return nil
}
