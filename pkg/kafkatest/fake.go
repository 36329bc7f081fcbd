package kafkatest

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// FakeOptions of a [Fake] cluster.
type FakeOptions struct {
	// Brokers is the number of brokers; 3 if 0.
	Brokers int
	// Opts go to kfake as they are, except that NumBrokers, Ports and ListenFn are this package's business.
	Opts []kfake.Opt
}

// Fake is a kfake cluster whose brokers are reached through proxies only. Its broker i has node id i.
type Fake struct {
	// Cluster is the kfake cluster itself, for its controls and faults. Use Fake's AddNode and RemoveNode instead of its own.
	Cluster *kfake.Cluster

	mu      sync.Mutex
	proxies map[int32]*Proxy
	opening []*Proxy // made by listen, not yet given to a node
}

// StartFake starts the cluster with [FixEpochs] applied.
func StartFake(o FakeOptions) (*Fake, error) {
	if o.Brokers <= 0 {
		o.Brokers = 3
	}
	f := &Fake{proxies: map[int32]*Proxy{}}
	c, err := kfake.NewCluster(append(o.Opts, kfake.NumBrokers(o.Brokers), kfake.ListenFn(f.listen))...)
	if err != nil {
		for _, p := range f.opening {
			p.Close()
		}
		return nil, fmt.Errorf("kfake: %w", err)
	}
	FixEpochs(c)
	f.Cluster = c
	for i, p := range f.opening { // kfake opens its listeners in order of node id
		f.proxies[int32(i)] = p
	}
	f.opening = nil
	return f, nil
}

// listen gives kfake a listener that claims to have its proxy's address, which is then what the broker advertises.
func (f *Fake) listen(network, address string) (net.Listener, error) {
	ln, err := net.Listen(network, address)
	if err != nil {
		return nil, err
	}
	p, err := NewProxy(ln.Addr().String())
	if err != nil {
		_ = ln.Close()
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opening = append(f.opening, p)
	return &proxied{Listener: ln, addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: p.port}}, nil
}

type proxied struct {
	net.Listener
	addr net.Addr
}

func (l *proxied) Addr() net.Addr { return l.addr }

// Addrs are the proxies' addresses of the brokers that are part of the cluster now, in kfake's order.
func (f *Fake) Addrs() []string { return f.Cluster.ListenAddrs() }

// Proxy is the proxy of a broker, also of one that was removed; nil if there never was one.
func (f *Fake) Proxy(node int32) *Proxy {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.proxies[node]
}

// Behind dials a broker by its proxy's address but past the proxy, for kgo.Dialer: a client that the faults do not concern, such as a
// producer whose records are the truth.
func (f *Fake) Behind(ctx context.Context, network, addr string) (net.Conn, error) {
	f.mu.Lock()
	for _, p := range f.proxies {
		if p.Addr() == addr {
			addr = p.target
			break
		}
	}
	f.mu.Unlock()
	return (&net.Dialer{Timeout: 3 * time.Second}).DialContext(ctx, network, addr)
}

// Set puts the proxies of some brokers in a mode.
func (f *Fake) Set(m Mode, nodes ...int32) error {
	for _, n := range nodes {
		p := f.Proxy(n)
		if p == nil {
			return fmt.Errorf("no broker %d", n)
		}
		if err := p.Set(m); err != nil {
			return err
		}
	}
	return nil
}

// AddNode adds a broker behind a new proxy and shuffles all leaders, as kfake does. Not to be called twice at once.
func (f *Fake) AddNode() (node int32, err error) {
	node, _, err = f.Cluster.AddNode(-1, 0)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		for _, p := range f.opening {
			p.Close()
		}
		f.opening = nil
		return 0, err
	}
	for _, p := range f.opening {
		f.proxies[node] = p
	}
	f.opening = nil
	return node, nil
}

// RemoveNode takes a broker out of the cluster and makes its address behave as mode says, Refuse for an ended process. It shuffles all
// leaders, as kfake does. The last broker of a new cluster is the controller and should stay: without it kfake's admin requests hang.
func (f *Fake) RemoveNode(node int32, m Mode) error {
	if err := f.Cluster.RemoveNode(node); err != nil {
		return err
	}
	return f.Set(m, node)
}

// Close ends the brokers and the proxies.
func (f *Fake) Close() {
	f.Cluster.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.proxies {
		p.Close()
	}
}

// FixEpochs makes a kfake cluster answer OffsetForLeaderEpoch as a real broker does after a leader moved and before the new one has written
// anything: with the log end instead of "unknown". Without it franz-go reports data loss on every move and reads up to a minute
// again. It answers for every epoch, so truncation cannot be played with it on.
func FixEpochs(c *kfake.Cluster) {
	c.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		req := kreq.(*kmsg.OffsetForLeaderEpochRequest)
		resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
		// Asking the cluster from its own goroutine would deadlock; SleepControl lets it go on meanwhile.
		c.SleepControl(func() {
			for _, rt := range req.Topics {
				st := kmsg.NewOffsetForLeaderEpochResponseTopic()
				st.Topic = rt.Topic
				for _, rp := range rt.Partitions {
					st.Partitions = append(st.Partitions, logEnd(c, rt.Topic, rp))
				}
				resp.Topics = append(resp.Topics, st)
			}
		})
		return resp, nil, true
	})
}

func logEnd(c *kfake.Cluster, topic string, rp kmsg.OffsetForLeaderEpochRequestTopicPartition) kmsg.OffsetForLeaderEpochResponseTopicPartition {
	sp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
	sp.Partition = rp.Partition
	info := c.PartitionInfo(topic, rp.Partition)
	if info == nil {
		sp.ErrorCode = kerr.UnknownTopicOrPartition.Code
		return sp
	}
	sp.LeaderEpoch, sp.EndOffset = rp.LeaderEpoch, info.HighWatermark
	return sp
}
