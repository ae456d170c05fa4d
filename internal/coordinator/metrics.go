package coordinator

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics of a coordinator. Gauges of a fleet are those of its leader: others show 0.
type Metrics struct {
	role       prometheus.Gauge
	term       prometheus.Gauge
	inputs     prometheus.Counter
	step       prometheus.Histogram
	commit     prometheus.Histogram
	batch      prometheus.Histogram
	written    *prometheus.CounterVec
	alarms     *prometheus.CounterVec
	usage      *prometheus.GaugeVec
	requests   *prometheus.CounterVec
	eventsLost prometheus.Counter
}

// NewMetrics registers the metrics with reg; nil registers them nowhere.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	f := promauto.With(reg)
	fast := prometheus.ExponentialBuckets(0.0001, 2, 16) // 0.1 ms to 3 s
	return &Metrics{
		role:       f.NewGauge(prometheus.GaugeOpts{Name: "proxyfleet_coordinator_role", Help: "0 starting, 1 standing by, 2 taking over, 3 leading."}),
		term:       f.NewGauge(prometheus.GaugeOpts{Name: "proxyfleet_coordinator_term", Help: "Takeovers of this fleet so far, as of this coordinator's last one."}),
		inputs:     f.NewCounter(prometheus.CounterOpts{Name: "proxyfleet_coordinator_inputs_total", Help: "Messages, beats and ticks taken in."}),
		step:       f.NewHistogram(prometheus.HistogramOpts{Name: "proxyfleet_coordinator_step_seconds", Help: "Time to decide about what came together.", Buckets: fast}),
		commit:     f.NewHistogram(prometheus.HistogramOpts{Name: "proxyfleet_coordinator_commit_seconds", Help: "Time to store one batch of decisions.", Buckets: fast}),
		batch:      f.NewHistogram(prometheus.HistogramOpts{Name: "proxyfleet_coordinator_batch_messages", Help: "Messages in one batch of decisions.", Buckets: prometheus.ExponentialBuckets(1, 2, 11)}),
		written:    f.NewCounterVec(prometheus.CounterOpts{Name: "proxyfleet_coordinator_inventory_writes_total", Help: "Keys written to the inventory."}, []string{"bucket"}),
		alarms:     f.NewCounterVec(prometheus.CounterOpts{Name: "proxyfleet_coordinator_alarms_total", Help: "What does not mend itself."}, []string{"reason"}),
		usage:      f.NewGaugeVec(prometheus.GaugeOpts{Name: "proxyfleet_stream_usage_ratio", Help: "How full a stream is, by the nearest of its limits."}, []string{"stream"}),
		requests:   f.NewCounterVec(prometheus.CounterOpts{Name: "proxyfleet_api_requests_total", Help: "Requests to the API."}, []string{"endpoint", "outcome"}),
		eventsLost: f.NewCounter(prometheus.CounterOpts{Name: "proxyfleet_coordinator_events_dropped_total", Help: "Events that came faster than they could be published."}),
	}
}
