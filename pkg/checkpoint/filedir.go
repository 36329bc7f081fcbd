package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.uber.org/zap"

	"rollcall/pkg/aggregate"
)

// folder is where a history's files are.
func (f *File) folder(h History) string {
	return filepath.Join(f.cfg.Dir, filepath.FromSlash(h.String()))
}

// folders lists the folders below a part of the directory; none if it is not there.
func (f *File) folders(path ...string) ([]string, error) {
	dir := filepath.Join(append([]string{f.cfg.Dir}, path...)...)
	entries, err := os.ReadDir(dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, f.classify("a checkpoint folder", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		} else {
			f.foreign(filepath.Join(dir, e.Name()))
		}
	}
	return names, nil
}

// foreign says, once, that something in the directory is not ours.
func (f *File) foreign(path string) {
	if !f.said[path] {
		f.said[path] = true
		f.log.Info("not a checkpoint of this worker; ignored", zap.String("path", path))
	}
}

// cuts lists the next offsets of a history's files, newest first, and removes what a writer that was killed left behind.
func (f *File) cuts(h History) ([]int64, error) {
	dir := f.folder(h)
	entries, err := os.ReadDir(dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, f.classify("a checkpoint folder", err)
	}
	var cuts []int64
	for _, e := range entries {
		name := e.Name()
		base, isFile := strings.CutSuffix(name, fileExt)
		next, err := strconv.ParseInt(base, 10, 64)
		switch {
		case strings.HasSuffix(name, fileExt+tmpExt):
			f.log.Info("removing a checkpoint that was not finished", zap.String("path", filepath.Join(dir, name)))
			if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, f.classify("an unfinished checkpoint", err)
			}
		case !isFile || err != nil || next <= 0 || fileName(next) != name || !e.Type().IsRegular():
			f.foreign(filepath.Join(dir, name))
		default:
			cuts = append(cuts, next)
		}
	}
	slices.Sort(cuts)
	slices.Reverse(cuts)
	return cuts, nil
}

func fileName(next int64) string { return fmt.Sprintf("%019d%s", next, fileExt) }

// newest reads the newest file of a history that can be read; nil if there are none.
func (f *File) newest(h History) (*image, error) {
	cuts, err := f.cuts(h)
	if err != nil {
		return nil, err
	}
	var damage []error
	for _, next := range cuts {
		path := filepath.Join(f.folder(h), fileName(next))
		m, err := f.read(path, h, next)
		if err == nil {
			return m, nil
		}
		if !errors.Is(err, errDamaged) {
			return nil, err
		}
		damage = append(damage, err)
		if !f.said[path] {
			f.said[path] = true
			f.log.Error("a checkpoint is damaged; falling back to the one before", zap.String("path", path), zap.Error(err))
		}
	}
	if len(damage) > 0 {
		return nil, &UnusableError{
			What: "every file of " + h.String(), Err: errors.Join(damage...),
			Remedy: "bring back a good file; if its rows may be given up, remove the folder " + f.folder(h) + " and set CHECKPOINT_ALLOW_EMPTY=true",
		}
	}
	return nil, nil
}

func (f *File) read(path string, h History, next int64) (*image, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, f.classify("a checkpoint", err)
	}
	m, err := decodeImage(path, b)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, err)
	case m.progress.History != h || m.progress.Next != next:
		return nil, fmt.Errorf("%s: %w: holds %s up to %d", path, errDamaged, m.progress.History, m.progress.Next)
	case m.target != f.cfg.Target:
		return nil, &UnusableError{
			What: path, Err: fmt.Errorf("made for %s, this worker writes to %s", m.target, f.cfg.Target),
			Remedy: "give each target its own directory",
		}
	}
	return m, nil
}

// write puts the state into a new file that is there whole or not at all.
func (f *File) write(st *fileState) error {
	m := image{progress: st.progress, target: f.cfg.Target, dims: f.cfg.Dimensions}
	for _, measure := range f.cfg.Measures {
		m.kinds = append(m.kinds, measure.Kind)
	}
	keys := make([]string, 0, len(st.rows))
	for k := range st.rows {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	m.rows = make([]aggregate.Row, 0, len(keys))
	for _, k := range keys {
		m.rows = append(m.rows, st.rows[k])
	}
	dir := f.folder(st.progress.History)
	if err := f.makeFolder(dir); err != nil {
		return f.classify("a checkpoint folder", err)
	}
	name := fileName(st.progress.Next)
	tmp, err := os.CreateTemp(dir, name[:len(name)-len(fileExt)]+".*"+fileExt+tmpExt)
	if err != nil {
		return f.classify("a checkpoint", err)
	}
	path := filepath.Join(dir, name)
	_, err = tmp.Write(m.encode())
	if err == nil {
		err = tmp.Sync()
	}
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	delete(f.said, path)
	return syncDir(dir)
}

// makeFolder makes the folders of a history below the checkpoint directory, durably.
func (f *File) makeFolder(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	rel, err := filepath.Rel(f.cfg.Dir, dir)
	if err != nil {
		return err
	}
	at := f.cfg.Dir
	for part := range strings.SplitSeq(rel, string(filepath.Separator)) {
		parent := at
		at = filepath.Join(at, part)
		switch err := os.Mkdir(at, 0o755); {
		case errors.Is(err, fs.ErrExist):
		case err != nil:
			return err
		default:
			if err := syncDir(parent); err != nil {
				return err
			}
		}
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// prune removes what is older than the newest files that stay. Files beyond next are left alone: they are damaged, or of another writer.
func (f *File) prune(h History, next int64) {
	cuts, err := f.cuts(h)
	if err != nil {
		f.log.Warn("old checkpoints were not removed", zap.Error(err))
		return
	}
	kept := 0
	for _, c := range cuts {
		if c > next {
			continue
		}
		if kept++; kept <= f.cfg.Keep {
			continue
		}
		if err := os.Remove(filepath.Join(f.folder(h), fileName(c))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			f.log.Warn("an old checkpoint was not removed", zap.Error(err))
			return
		}
	}
}
