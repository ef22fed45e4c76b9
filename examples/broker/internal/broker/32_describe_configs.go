package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
	"github.com/seed-782fa212/limbo/examples/broker/internal/settings"
	"github.com/seed-782fa212/limbo/examples/broker/internal/wire"
)

// handleDescribeConfigs builds the answer when it is written: it is many times the size of the
// request for it, and must not wait in a queue.
func handleDescribeConfigs(s *Server, c *wire.Conn, q *kmsg.DescribeConfigsRequest, r *wire.Reply) {
	r.Answer(func() kmsg.Response {
		return describeConfigs(q, s.id, &s.cfg, s.image())
	})
}

func describeConfigs(q *kmsg.DescribeConfigsRequest, node int32, cfg *Config, img *meta.Image) *kmsg.DescribeConfigsResponse {
	builtIn, _ := Config{}.WithDefaults() // the defaults are in range
	asked := settings.DescribeQuery{Started: cfg.settings(), BuiltIn: builtIn.settings(), Synonyms: q.IncludeSynonyms, Documentation: q.IncludeDocumentation}
	return asked.Answer(q, node, img)
}
