// Package config reads the worker's settings from environment variables and
// nothing else.
//
// The struct tags of Config are the one list of settings: Load, Describe,
// Effective and WriteMarkdown all walk them, so a setting that is not in a tag
// does not exist and one that is cannot be forgotten in the documentation.
//
// The contract: Load either returns a Config every package can use without
// checking it again, or an *Error with every problem found, one line each,
// naming the variable, what was found, what is allowed and what to do. Remarks
// that do not prevent a start are in Config.Warnings. A secret's value appears
// in none of them, nor in anything that prints a Config.
//
// The environment and the file reader are arguments of Load; only FromOS
// touches the process. The types are plain Go: config imports no package of
// the worker, and only cmd and pkg/pipeline import config. A loaded Config is
// read-only and may be shared between goroutines.
package config
