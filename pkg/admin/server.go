package admin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"
)

// Server is the HTTP server. See the package comment for what it serves.
type Server struct {
	cfg    Config
	log    *zap.Logger
	live   question[[]Stale]
	ready  question[[]Reason]
	status question[Status]
	http   *http.Server

	mu       sync.Mutex
	listener net.Listener // guarded by mu; nil until Listen
}

// New returns a server that listens and serves nothing yet.
func New(cfg Config, deps Deps) *Server {
	cfg = cfg.withDefaults()
	s := &Server{cfg: cfg, log: cfg.Log, listener: cfg.Listener}
	s.live = question[[]Stale]{name: "live", limit: cfg.AnswerTimeout, log: cfg.Log, ask: func(context.Context) ([]Stale, error) {
		if deps.Live == nil {
			return nil, nil
		}
		return deps.Live(), nil
	}}
	s.ready = question[[]Reason]{name: "ready", limit: cfg.AnswerTimeout, log: cfg.Log, ask: func(ctx context.Context) ([]Reason, error) {
		if deps.Ready == nil {
			return nil, nil
		}
		return deps.Ready(ctx), nil
	}}
	s.status = question[Status]{name: "status", limit: cfg.AnswerTimeout, log: cfg.Log, ask: func(ctx context.Context) (Status, error) {
		if deps.Status == nil {
			return Status{}, nil
		}
		return deps.Status(ctx)
	}}
	errorLog, _ := zap.NewStdLogAt(cfg.Log, zap.DebugLevel) // fails for unknown levels only
	s.http = &http.Server{
		Handler:           s.handler(deps.Gatherer),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      15 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          errorLog,
	}
	return s
}

// Listen opens the socket, so that a port in use is an error of the start and
// not of Run. Run calls it if nobody has.
func (s *Server) Listen(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener != nil {
		return nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.cfg.Addr)
	if err != nil {
		return fmt.Errorf("admin server: %w", err)
	}
	s.listener = l
	return nil
}

// Addr is host:port as it listens, or "" before Listen.
func (s *Server) Addr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener == nil {
		return ""
	}
	return s.listener.Addr().String()
}

// Run serves until ctx ends, then lets requests finish for
// Config.StopTimeout. It returns nil after such an end. Call it once.
func (s *Server) Run(ctx context.Context) error {
	if err := s.Listen(ctx); err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- s.http.Serve(s.listener) }()
	select {
	case err := <-served:
		_ = s.http.Close()
		return fmt.Errorf("admin server: %w", err)
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.StopTimeout)
	defer cancel()
	if err := s.http.Shutdown(stop); err != nil {
		s.log.Info("admin server cut requests off", zap.Error(err))
		_ = s.http.Close()
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("admin server: %w", err)
	}
	// The workers' answers are joined as far as they come; one that hangs must
	// not keep the process from ending.
	if err := errors.Join(s.live.wait(stop), s.ready.wait(stop), s.status.wait(stop)); err != nil {
		s.log.Warn("admin server leaves a call behind", zap.Error(err))
	}
	return nil
}
