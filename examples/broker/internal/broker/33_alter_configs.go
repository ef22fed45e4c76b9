package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
	"github.com/seed-782fa212/limbo/examples/broker/internal/settings"
	"github.com/seed-782fa212/limbo/examples/broker/internal/wire"
)

// handleAlterConfigs replaces all settings of topics. See also 44_incremental_alter_configs.go.
func handleAlterConfigs(s *Server, _ *wire.Conn, q *kmsg.AlterConfigsRequest, r *wire.Reply) {
	resp := q.ResponseKind().(*kmsg.AlterConfigsResponse)
	all := make([]settings.Alteration, len(q.Resources))
	for i, rr := range q.Resources {
		all[i] = settings.Alteration{Kind: rr.ResourceType, Name: rr.ResourceName, Change: func(to *meta.Settings) *wire.Refusal {
			*to = meta.Settings{}
			for _, c := range rr.Configs {
				if bad := s.cfg.set(to, c.Name, c.Value); bad != nil {
					return bad
				}
			}
			return nil
		}}
	}
	for i, bad := range settings.Alter(s.Controller, all, q.ValidateOnly) {
		sr := kmsg.NewAlterConfigsResponseResource()
		sr.ResourceType, sr.ResourceName = all[i].Kind, all[i].Name
		sr.ErrorCode, sr.ErrorMessage = bad.Fields()
		resp.Resources = append(resp.Resources, sr)
	}
	r.Now(resp)
}
