package settings

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
	"github.com/seed-782fa212/limbo/examples/broker/internal/wire"
)

// Alteration is a requested change to the settings of one resource.
type Alteration struct {
	Kind   kmsg.ConfigResourceType
	Name   string
	Change func(*meta.Settings) *wire.Refusal
}

// Alter changes settings, or with validateOnly only checks that it could. For each alteration it
// returns the reason for a refusal, or nil. The new settings take effect at each broker when it
// learns of them.
func Alter(c *meta.Controller, all []Alteration, validateOnly bool) []*wire.Refusal {
	requests := map[string]int{}
	for _, a := range all {
		requests[a.Name]++
	}
	refused := make([]*wire.Refusal, len(all))
	for i, a := range all {
		refused[i] = a.do(c, requests[a.Name] > 1, validateOnly)
	}
	return refused
}

func (a Alteration) do(c *meta.Controller, duplicate, validateOnly bool) *wire.Refusal {
	t := c.Image().ByName[a.Name]
	switch {
	case a.Kind == kmsg.ConfigResourceTypeBroker:
		return &wire.Refusal{Code: kerr.InvalidRequest, Message: "a broker's settings are those that it was started with"}
	case a.Kind != kmsg.ConfigResourceTypeTopic:
		return &wire.Refusal{Code: kerr.InvalidRequest, Message: "only topics have settings that can be changed"}
	case duplicate:
		return &wire.Refusal{Code: kerr.InvalidRequest, Message: fmt.Sprintf("%q is named twice in this request", a.Name)}
	case t == nil:
		return &wire.Refusal{Code: kerr.UnknownTopicOrPartition, Message: "there is no such topic"}
	case t.Internal:
		return &wire.Refusal{Code: kerr.PolicyViolation, Message: "this topic is the coordinators' own"}
	}
	candidate := t.Settings
	if bad := a.Change(&candidate); bad != nil || validateOnly {
		return bad
	}
	if !c.Configure(t.ID, func(to *meta.Settings) { a.Change(to) }) {
		return &wire.Refusal{Code: kerr.UnknownTopicOrPartition, Message: "the topic has just been deleted"}
	}
	return nil
}
