package preflight

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// TryStore tries the directory of a file checkpoint store as its user would use it: a file is made in it and removed.
func TryStore(dir string) []Result {
	l := lines{part: Checkpoint}
	name := "checkpoint directory " + dir
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		if err == nil {
			err = syscall.ENOTDIR
		}
		l.fail(name, storeFault(err))
		return l.all
	}
	f, err := os.CreateTemp(dir, ".rollcall-check-*")
	if err == nil {
		_, err = f.WriteString("rollcall check\n")
		err = errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	if err != nil {
		l.fail(name, storeFault(err))
		return l.all
	}
	l.ok(name, "may be written")
	return l.all
}

func storeFault(err error) fault {
	f := fault{cause: innermost(err), remedy: "the volume must be mounted there and have room: correct the mount or CHECKPOINT_STORE"}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.cause = "it does not exist"
	case errors.Is(err, syscall.ENOTDIR):
		f.cause, f.remedy = "it is no directory", "correct CHECKPOINT_STORE"
	case errors.Is(err, fs.ErrPermission):
		f.cause, f.remedy = "this user may not write to it", "give it to the user of the process (in Kubernetes securityContext.fsGroup)"
	case errors.Is(err, syscall.EROFS):
		f.cause, f.remedy = "it is on a read-only file system", "mount a volume there that may be written"
	case errors.Is(err, syscall.ENOSPC):
		f.cause, f.remedy = "its file system is full", "make room or enlarge the volume"
	}
	return f
}
