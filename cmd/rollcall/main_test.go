package main

import (
	"bytes"
	"strings"
	"testing"

	"rollcall/pkg/pipeline"
)

func TestUsualSpellings(t *testing.T) {
	for args, want := range map[string]string{
		"version": "rollcall dev\n", "--version": "rollcall dev\n", "-v": "rollcall dev\n", "-V": "rollcall dev\n", "-version": "rollcall dev\n",
		"help": "Usage: rollcall", "--help": "Usage: rollcall", "-h": "Usage: rollcall", "help check": "--connect", "check --help": "--connect",
	} {
		var out, err bytes.Buffer
		if code := run(strings.Fields(args), &out, &err); code != 0 || !strings.Contains(out.String(), want) || err.Len() > 0 {
			t.Errorf("rollcall %s: exit %d, %q, %q; want %q", args, code, out.String(), err.String(), want)
		}
	}
	for _, args := range []string{"--nonsense", "nonsense", "-x"} {
		var out, err bytes.Buffer
		if code := run(strings.Fields(args), &out, &err); code != pipeline.ExitSettings || !strings.Contains(err.String(), "see rollcall --help") {
			t.Errorf("rollcall %s: exit %d, %q", args, code, err.String())
		}
	}
}
