// Command sbom writes the software bill of materials of a Go binary as CycloneDX 1.5 JSON, from what the linker recorded in it: the modules
// that are really linked, with their checksums, and the Go release.
package main

import (
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
)

type document struct {
	Format      string      `json:"bomFormat"`
	SpecVersion string      `json:"specVersion"`
	Version     int         `json:"version"`
	Metadata    metadata    `json:"metadata"`
	Components  []component `json:"components"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Type       string     `json:"type"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	PURL       string     `json:"purl,omitempty"`
	Hashes     []hash     `json:"hashes,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func main() {
	binary := flag.String("binary", "", "the binary to read")
	version := flag.String("version", "dev", "its version")
	flag.Parse()
	if err := run(*binary, *version, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(3) //nolint:forbidigo // a command
	}
}

func run(binary, version string, out io.Writer) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return fmt.Errorf("read %s: %w", binary, err)
	}
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	return enc.Encode(describe(info, version))
}

func describe(info *buildinfo.BuildInfo, version string) document {
	d := document{
		Format: "CycloneDX", SpecVersion: "1.5", Version: 1,
		Metadata:   metadata{component{Type: "application", Name: info.Main.Path, Version: version, PURL: purl(info.Main.Path, version)}},
		Components: []component{{Type: "library", Name: "std", Version: strings.TrimPrefix(info.GoVersion, "go"), PURL: purl("std", strings.TrimPrefix(info.GoVersion, "go"))}},
	}
	for _, dep := range info.Deps {
		d.Components = append(d.Components, module(dep))
	}
	return d
}

func module(m *debug.Module) component {
	if m.Replace != nil {
		m = m.Replace
	}
	c := component{Type: "library", Name: m.Path, Version: m.Version, PURL: purl(m.Path, m.Version)}
	// A checksum is "h1:" and the base64 of a SHA-256 over the module's files (golang.org/x/mod/sumdb/dirhash).
	if sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:")); err == nil && len(sum) > 0 {
		c.Hashes = []hash{{"SHA-256", hex.EncodeToString(sum)}}
		c.Properties = []property{{"golang:module:sum", m.Sum}}
	}
	return c
}

func purl(path, version string) string { return "pkg:golang/" + path + "@" + version }
