package broker

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
	"github.com/seed-782fa212/limbo/examples/broker/internal/settings"
	"github.com/seed-782fa212/limbo/examples/broker/internal/wire"
)

// handleAlterConfigs replaces all settings of topics. See also 44_incremental_alter_configs.go.
func handleAlterConfigs(s *Server, _ *wire.Conn, q *kmsg.AlterConfigsRequest, r *wire.Reply) {
	resp := q.ResponseKind().(*kmsg.AlterConfigsResponse)
	asked := map[string]int{}
	for i := range q.Resources {
		asked[q.Resources[i].ResourceName]++
	}
	for i := range q.Resources {
		rr := &q.Resources[i]
		sr := kmsg.NewAlterConfigsResponseResource()
		sr.ResourceType, sr.ResourceName = rr.ResourceType, rr.ResourceName
		bad := s.configure(rr.ResourceType, rr.ResourceName, asked[rr.ResourceName] > 1, q.ValidateOnly, func(to *meta.Settings) *refusal {
			*to = meta.Settings{}
			for _, c := range rr.Configs {
				if err := settings.Set(to, c.Name, c.Value, s.cfg.settings()); err != nil {
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

// configure changes the settings of a topic. They hold once each broker has heard of it.
func (s *Server) configure(kind kmsg.ConfigResourceType, name string, twice, validateOnly bool, change func(*meta.Settings) *refusal) *refusal {
	t := s.controller.Image().ByName[name]
	switch {
	case kind == kmsg.ConfigResourceTypeBroker:
		return &refusal{kerr.InvalidRequest, "a broker's settings are those that it was started with"}
	case kind != kmsg.ConfigResourceTypeTopic:
		return &refusal{kerr.InvalidRequest, "only topics have settings that can be changed"}
	case twice:
		return &refusal{kerr.InvalidRequest, fmt.Sprintf("%q is named twice in this request", name)}
	case t == nil:
		return &refusal{kerr.UnknownTopicOrPartition, "there is no such topic"}
	case t.Internal:
		return &refusal{kerr.PolicyViolation, "this topic is the coordinators' own"}
	}
	tried := t.Settings
	if bad := change(&tried); bad != nil || validateOnly {
		return bad
	}
	if !s.controller.Configure(t.ID, func(to *meta.Settings) { change(to) }) {
		return &refusal{kerr.UnknownTopicOrPartition, "the topic has just been deleted"}
	}
	return nil
}
