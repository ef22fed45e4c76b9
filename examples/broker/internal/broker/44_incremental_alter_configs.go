package broker

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
	"github.com/seed-782fa212/limbo/examples/broker/internal/settings"
	"github.com/seed-782fa212/limbo/examples/broker/internal/wire"
)

// handleIncrementalAlterConfigs changes only the settings that the request names.
func handleIncrementalAlterConfigs(s *Server, _ *wire.Conn, q *kmsg.IncrementalAlterConfigsRequest, r *wire.Reply) {
	resp := q.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	all := make([]settings.Alteration, len(q.Resources))
	for i, rr := range q.Resources {
		all[i] = settings.Alteration{Kind: rr.ResourceType, Name: rr.ResourceName, Change: func(to *meta.Settings) *wire.Refusal {
			for _, c := range rr.Configs {
				value := c.Value
				switch c.Op {
				case kmsg.IncrementalAlterConfigOpSet:
				case kmsg.IncrementalAlterConfigOpDelete:
					value = nil
				default: // append and subtract need a list, and no setting here is one
					return &wire.Refusal{Code: kerr.InvalidConfig, Message: fmt.Sprintf("%s can be set and deleted only", c.Name)}
				}
				if bad := s.cfg.set(to, c.Name, value); bad != nil {
					return bad
				}
			}
			return nil
		}}
	}
	for i, bad := range settings.Alter(s.Controller, all, q.ValidateOnly) {
		sr := kmsg.NewIncrementalAlterConfigsResponseResource()
		sr.ResourceType, sr.ResourceName = all[i].Kind, all[i].Name
		sr.ErrorCode, sr.ErrorMessage = bad.Fields()
		resp.Resources = append(resp.Resources, sr)
	}
	r.Now(resp)
}
