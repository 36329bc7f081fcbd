package starrockstest

import (
	"fmt"
	"slices"
	"time"
)

// AlterState is the state of a schema change job, spelt as SHOW ALTER TABLE COLUMN answers it.
type AlterState string

// The states of a job; FINISHED and CANCELLED are final.
const (
	AlterPending    AlterState = "PENDING"
	AlterWaitingTxn AlterState = "WAITING_TXN"
	AlterRunning    AlterState = "RUNNING"
	AlterFinished   AlterState = "FINISHED"
	AlterCancelled  AlterState = "CANCELLED"
)

// alterJob is one ALTER TABLE on its way. apply changes the table when the job finishes.
type alterJob struct {
	id       int64
	txn      int64 // loads begun before it must end first
	table    *table
	state    AlterState
	msg      string
	created  time.Time
	runsAt   time.Time // leaves PENDING
	readyAt  time.Time
	finished time.Time
	cancel   string // if set: ends CANCELLED with this message
	apply    func()
}

func (e *engine) execAlter(st *statement) error {
	p := st.p
	if p.accept("VIEW") {
		return e.alterView(st)
	}
	if err := p.expect("TABLE"); err != nil {
		return err
	}
	db, name, err := st.target()
	if err != nil {
		return err
	}
	t, err := e.tableNamed(db, name)
	if err != nil {
		return err
	}
	if err := st.need(Alter, "TABLE "+name); err != nil {
		return err
	}
	switch {
	case p.accept("ADD", "COLUMN"):
		return e.addColumns(st, t)
	case p.accept("MODIFY", "COLUMN"):
		c, err := p.columnDef()
		if err != nil {
			return err
		}
		i, ok := t.col(c.name)
		if !ok {
			return sqlErr(errCodeAnalysis, "Column[%s] does not exists", c.name)
		}
		if c.key = t.cols[i].key; !c.key && c.agg != t.cols[i].agg {
			return sqlErr(errCodeAnalysis, "Can not change aggregation type")
		}
		return e.startJob(t, func() { t.replaceColumn(c) })
	case p.accept("DROP", "COLUMN"):
		c, err := p.name()
		if err != nil {
			return err
		}
		if _, ok := t.col(c); !ok {
			return sqlErr(errCodeAnalysis, "Column does not exists: %s", c)
		}
		return e.startJob(t, func() { t.removeColumn(c) })
	case p.accept("DROP", "PARTITION"):
		ifExists := p.accept("IF", "EXISTS")
		part, err := p.name()
		if err != nil {
			return err
		}
		if !t.dropPartition(part) && !ifExists {
			return sqlErr(errCodeAnalysis, "Error in list of partitions to %s", part)
		}
		t.history = nil
		e.touch()
		return nil
	case p.accept("ADD", "PARTITION"):
		p.i-- // rangeDef reads the word itself
		r, err := p.rangeDef("")
		if err != nil {
			return err
		}
		t.part.ranges = append(t.part.ranges, r)
		t.partition(r.name)
		e.touch()
		return nil
	case p.accept("SET"):
		props, err := p.properties()
		if err != nil {
			return err
		}
		for _, kv := range props {
			t.props = slices.DeleteFunc(t.props, func(o [2]string) bool { return o[0] == kv[0] })
			t.props = append(t.props, kv)
		}
		return nil
	}
	return sqlErr(errCodeAnalysis, "the stand-in does not know this ALTER TABLE: %s", p.sql)
}

func (e *engine) alterView(st *statement) error {
	v := &view{}
	var err error
	if v.db, v.name, err = st.target(); err != nil {
		return err
	}
	if err := st.p.viewBody(v); err != nil {
		return err
	}
	d, err := e.database(v.db)
	if err != nil {
		return err
	}
	if err := st.need(Alter, "VIEW "+v.name); err != nil {
		return err
	}
	old, ok := d.views[v.name]
	if !ok {
		return sqlErr(errCodeUnknownTable, "Unknown table '%s.%s'", v.db, v.name)
	}
	if err := st.checkView(v); err != nil {
		return err
	}
	v.id = old.id
	d.views[v.name] = v
	e.touch()
	return nil
}

// addColumns is ADD COLUMN def [AFTER c | FIRST] [, ADD COLUMN …] or ADD COLUMN (def, …).
func (e *engine) addColumns(st *statement, t *table) error {
	p := st.p
	type addition struct {
		c     column
		after string
	}
	var adds []addition
	list := p.accept("(")
	for {
		c, err := p.columnDef()
		if err != nil {
			return err
		}
		a := addition{c: c}
		if p.accept("AFTER") {
			if a.after, err = p.name(); err != nil {
				return err
			}
		}
		adds = append(adds, a)
		if !p.accept(",") {
			break
		}
		if !list {
			if err := p.expect("ADD", "COLUMN"); err != nil {
				return err
			}
		}
	}
	if list {
		if err := p.expect(")"); err != nil {
			return err
		}
	}
	if err := p.end(); err != nil {
		return err
	}
	for i, a := range adds {
		if err := t.checkAddition(a.c); err != nil {
			return err
		}
		if a.after == "" && a.c.agg == "" && t.model == modelAggregate {
			return sqlErr(errCodeAnalysis, "the stand-in adds key columns only with AFTER: %s", a.c.name)
		}
		adds[i].c.key = a.c.agg == "" && t.model == modelAggregate
	}
	return e.startJob(t, func() {
		for _, a := range adds {
			fill, err := a.c.defaultValue()
			if err != nil {
				fill = nil
			}
			t.insertColumn(a.c, a.after, fill)
			if a.c.key {
				t.keys = append(t.keys, a.c.name)
			}
		}
	})
}

func (t *table) checkAddition(c column) error {
	if _, dup := t.col(c.name); dup {
		return sqlErr(errCodeAnalysis, "Duplicate column name '%s'", c.name)
	}
	if c.agg != "" && t.model != modelAggregate {
		return sqlErr(errCodeAnalysis, "Can not assign aggregation method on column in %s table: %s", t.model, c.name)
	}
	if !c.nullable && c.def == nil {
		return sqlErr(errCodeAnalysis, "Getting analyzing error. Detail message: column `%s` is not allowed to be null and has no default value.", c.name)
	}
	return nil
}

// startJob queues a schema change; one may run per table. AlterScript decides how long it takes and how it ends.
func (e *engine) startJob(t *table, apply func()) error {
	for _, j := range t.jobs {
		if !j.state.final() {
			return sqlErr(errCodeAnalysis, "Table[%s]'s state(SCHEMA_CHANGE) is not NORMAL. Do not allow doing ALTER ops", t.name)
		}
	}
	script := AlterScript{Duration: e.cfg.AlterDuration}
	if len(e.alters) > 0 {
		script, e.alters = e.alters[0], e.alters[1:]
	}
	now := time.Now()
	j := &alterJob{
		id: e.id(), txn: e.id(), table: t, state: AlterPending, created: now, runsAt: now.Add(script.Duration / 3),
		readyAt: now.Add(script.Duration), apply: apply, cancel: script.Cancel,
	}
	t.jobs = append(t.jobs, j)
	e.touch()
	return nil
}

func (s AlterState) final() bool { return s == AlterFinished || s == AlterCancelled }

// advanceJobs moves every job as far as the time and older loads allow.
func (e *engine) advanceJobs(now time.Time) (next time.Time) {
	for _, d := range e.dbs {
		for _, t := range d.tables {
			for _, j := range t.jobs {
				if at := e.advanceJob(j, now); !at.IsZero() && (next.IsZero() || at.Before(next)) {
					next = at
				}
			}
		}
	}
	return next
}

func (e *engine) advanceJob(j *alterJob, now time.Time) (next time.Time) {
	for {
		before := j.state
		switch j.state {
		case AlterPending:
			if j.runsAt.After(now) {
				return j.runsAt
			}
			j.state = AlterWaitingTxn
		case AlterWaitingTxn:
			if !e.olderLoads(j) {
				j.state = AlterRunning
			}
		case AlterRunning:
			if j.readyAt.After(now) {
				return j.readyAt
			}
			j.finished, j.state, j.msg = now, AlterFinished, ""
			if j.cancel != "" {
				j.state, j.msg = AlterCancelled, j.cancel
			} else {
				j.apply()
			}
		}
		if j.state == before {
			return time.Time{}
		}
		e.touch()
	}
}

// olderLoads reports whether a load of the database that began before the job has not ended yet.
func (e *engine) olderLoads(j *alterJob) bool {
	for _, x := range e.txns {
		if x.db == j.table.db && x.id < j.txn && !x.state.final() {
			return true
		}
	}
	return false
}

// AlterScript is how the next schema change job goes: how long it takes, and if Cancel is set that it ends CANCELLED
// with that message instead of FINISHED.
type AlterScript struct {
	Duration time.Duration
	Cancel   string
}

// showAlter is SHOW ALTER TABLE COLUMN. StarRocks: fe SchemaChangeProcDir.TITLE_NAMES.
func (e *engine) showAlter(db string) (*relation, error) {
	d, err := e.database(db)
	if err != nil {
		return nil, err
	}
	r := relationOf("JobId:n", "TableName", "CreateTime", "FinishTime", "IndexName", "IndexId:n", "OriginIndexId:n",
		"SchemaVersion", "TransactionId:n", "State", "Msg", "Progress", "Timeout:n")
	for _, name := range sortedNames(d.tables) {
		t := d.tables[name]
		for _, j := range t.jobs {
			progress := any(nil)
			if j.state == AlterRunning {
				progress = "0/1"
			}
			r.rows = append(r.rows, []any{
				j.id, name, timeOrNull(j.created), timeOrNull(j.finished), name, t.id, t.id, fmt.Sprintf("%d:%d", t.version+1, j.id),
				j.txn, string(j.state), j.msg, progress, int64(86400),
			})
		}
	}
	return r, nil
}
