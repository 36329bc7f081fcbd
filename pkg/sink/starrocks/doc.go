// Package starrocks speaks to StarRocks: Client loads bodies by Stream Load (HTTP) and asks for label states, Table creates, verifies
// and watches the target table (MySQL protocol), DB gives others SELECTs over the same front ends.
//
// The contract of the package:
//
//   - A load is done only when the server said so in its exact words (classify.go holds every one of them). Anything else is failed or
//     unknown, and what is not understood is unknown.
//   - The body of a load is sent only to a server that asked for it with "100 Continue", so an attempt that ended before the whole
//     body was handed over has loaded nothing.
//   - Both redirect hops are made by hand, with the credentials on each; credentials leave a TLS connection for a plain one only where
//     Config.AllowPlainRedirect says so.
//   - Table work has deadlines, gives its result to every waiter, remembers nothing of a failed attempt, and believes only what it has
//     read back.
//
// The facts about StarRocks come from its sources and documentation; comments name the file.
package starrocks
