package broker

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
	"github.com/seed-782fa212/limbo/examples/broker/internal/settings"
	"github.com/seed-782fa212/limbo/examples/broker/internal/wire"
)

// handleIncrementalAlterConfigs changes those settings of topics that it names.
func handleIncrementalAlterConfigs(s *Server, _ *wire.Conn, q *kmsg.IncrementalAlterConfigsRequest, r *wire.Reply) {
	resp := q.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	asked := map[string]int{}
	for i := range q.Resources {
		asked[q.Resources[i].ResourceName]++
	}
	for i := range q.Resources {
		rr := &q.Resources[i]
		sr := kmsg.NewIncrementalAlterConfigsResponseResource()
		sr.ResourceType, sr.ResourceName = rr.ResourceType, rr.ResourceName
		bad := s.configure(rr.ResourceType, rr.ResourceName, asked[rr.ResourceName] > 1, q.ValidateOnly, func(to *meta.Settings) *refusal {
			for _, c := range rr.Configs {
				value := c.Value
				switch c.Op {
				case kmsg.IncrementalAlterConfigOpSet:
				case kmsg.IncrementalAlterConfigOpDelete:
					value = nil
				default: // no setting here is a list that one could add to
					return &refusal{kerr.InvalidConfig, fmt.Sprintf("%s can be set and deleted only", c.Name)}
				}
				if err := settings.Set(to, c.Name, value, s.cfg.settings()); err != nil {
					return &refusal{kerr.InvalidConfig, err.Error()}
				}
			}
			return nil
		})
		if bad != nil {
			sr.ErrorCode, sr.ErrorMessage = wire.Code(bad.code), kmsg.StringPtr(bad.message)
		}
		resp.Resources = append(resp.Resources, sr)
	}
	r.Now(resp)
}
