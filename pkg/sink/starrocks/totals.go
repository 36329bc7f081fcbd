package starrocks

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"rollcall/pkg/aggregate"
)

// DayTotal is one day of the table over all dimensions and sources.
type DayTotal struct {
	Day aggregate.Day
	// Values has one per measure that is not NULL, by name; a sum beyond 2^63−1 is left out.
	Values map[string]int64
}

// DayTotals reads the totals of the days from the given one on, oldest first, for people to look at. It costs the server a scan of those
// days, so callers ask only when somebody looks.
func (t *Table) DayTotals(ctx context.Context, from aggregate.Day) ([]DayTotal, error) {
	selects := []string{quote(columnDay)}
	for _, m := range t.cfg.Measures {
		selects = append(selects, merged(m)+" AS "+quote(m.Name))
	}
	rows, err := t.query(ctx, fmt.Sprintf("SELECT %s FROM %s WHERE %s >= ? GROUP BY %s ORDER BY %s", strings.Join(selects, ", "),
		t.qualified(t.cfg.Table), quote(columnDay), quote(columnDay), quote(columnDay)), from.String())
	if err != nil {
		return nil, classifyStatement("read the totals of table "+t.cfg.Table, err)
	}
	out := make([]DayTotal, 0, len(rows))
	for _, r := range rows {
		day, err := aggregate.ParseDay(r[columnDay])
		if err != nil {
			return nil, fmt.Errorf("totals of table %s: day %q: %w", t.cfg.Table, r[columnDay], err)
		}
		d := DayTotal{Day: day, Values: map[string]int64{}}
		for _, m := range t.cfg.Measures {
			if v, err := strconv.ParseInt(r[strings.ToLower(m.Name)], 10, 64); err == nil {
				d.Values[m.Name] = v
			}
		}
		out = append(out, d)
	}
	return out, nil
}
