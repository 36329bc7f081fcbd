// Command gen prints the Grafana dashboard: go run ./deploy/grafana/gen > deploy/grafana/dashboard.json
package main

import (
	"encoding/json"
	"fmt"
	"os"
)

func main() {
	d, err := build()
	if err == nil {
		enc := json.NewEncoder(os.Stdout)
		enc.SetIndent("", "  ")
		err = enc.Encode(d)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "dashboard:", err)
		os.Exit(3)
	}
}
