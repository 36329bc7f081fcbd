// Package admin serves what people and Kubernetes look at: /livez, /readyz,
// /metrics, /status and the status page at /.
//
// The contract: the server asks (Deps) and never decides; nothing it does can
// slow down or stop the worker, and nothing that hangs in the worker makes it
// hang. A question that is not answered within Config.AnswerTimeout is answered
// for it: not ready, not live, or status unknown, with that as the reason. At
// most one call of each question runs at a time; requests that come meanwhile
// share its answer.
//
//	/livez   200 while every registered loop turns, else 503 naming the loops.
//	         An outage of Kafka or StarRocks is no reason.
//	/readyz  200, or 503 with one reason per failing check, as JSON.
//	/metrics the Prometheus metrics of the injected Gatherer.
//	/status  Status as JSON; 503 if it cannot be had in time.
//	/        the status page, which shows /status and asks again every 2 s.
//
// New starts nothing; Run serves until its context ends and joins what it
// started.
package admin
