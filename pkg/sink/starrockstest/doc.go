// Package starrockstest is a stand-in StarRocks for tests and the demo. It is not StarRocks.
//
//	c := starrockstest.New(starrockstest.Config{})
//	if err := c.Start(); err != nil { … }
//	defer c.Close()
//	err := c.Exec("CREATE DATABASE dau", `CREATE TABLE dau.t (dt DATE NOT NULL, …) AGGREGATE KEY(dt) …`)
//	// the worker's settings: c.FEURL(1), c.MySQLAddr(1), user root, empty password
//	rule := c.Inject(starrockstest.Fault{At: starrockstest.AtCommit, Skip: 9, Times: starrockstest.Forever,
//		Do: []starrockstest.Action{starrockstest.Fail(starrockstest.MsgTooManyVersions)}})
//	// … run the worker …
//	rows, err := c.Rows("dau", "t") // or c.Query("SELECT …"), c.Loads(), c.Statements(), rule.Hits()
package starrockstest
