package oracle

import (
	"context"
	"database/sql"
	"fmt"
)

// Query reads the view as a user would, in order of the key. view is quoted by the caller if it needs to be.
func Query(ctx context.Context, db *sql.DB, view string) ([]Row, error) {
	rows, err := db.QueryContext(ctx, "SELECT dt, platform, channel, uv, pv, amount, least, most FROM "+view+" ORDER BY dt, platform, channel")
	if err != nil {
		return nil, fmt.Errorf("query the view: %w", err)
	}
	defer rows.Close() //nolint:errcheck // rows.Err tells
	var out []Row
	for rows.Next() {
		var r Row
		if err := rows.Scan(&r.Day, &r.Platform, &r.Channel, &r.UV, &r.PV, &r.Amount, &r.Least, &r.Most); err != nil {
			return nil, fmt.Errorf("read a row of the view: %w", err)
		}
		if len(r.Day) > 10 {
			r.Day = r.Day[:10]
		}
		out = append(out, r)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read the view: %w", err)
	}
	return out, nil
}
