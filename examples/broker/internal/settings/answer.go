package settings

import (
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-782fa212/limbo/examples/broker/internal/meta"
	"github.com/seed-782fa212/limbo/examples/broker/internal/wire"
)

// Answer answers a request to describe topics and this broker, whose id is node.
func (a *DescribeQuery) Answer(q *kmsg.DescribeConfigsRequest, node int32, img *meta.Image) *kmsg.DescribeConfigsResponse {
	resp := q.ResponseKind().(*kmsg.DescribeConfigsResponse)
	// A resource that is named twice is answered once: see describe of 03_metadata.go.
	type resource struct {
		kind kmsg.ConfigResourceType
		name string
	}
	seen := map[resource]bool{}
	for i := range q.Resources {
		rr := &q.Resources[i]
		if seen[resource{rr.ResourceType, rr.ResourceName}] {
			continue
		}
		seen[resource{rr.ResourceType, rr.ResourceName}] = true
		sr := kmsg.NewDescribeConfigsResponseResource()
		sr.ResourceType, sr.ResourceName = rr.ResourceType, rr.ResourceName
		fail := func(e *kerr.Error, format string, args ...any) {
			sr.ErrorCode, sr.ErrorMessage = wire.Code(e), kmsg.StringPtr(fmt.Sprintf(format, args...))
		}
		switch rr.ResourceType {
		case kmsg.ConfigResourceTypeTopic:
			t := img.ByName[rr.ResourceName]
			switch {
			case t != nil:
				sr.Configs = a.Describe(t, rr.ConfigNames)
			case !meta.ValidTopicName(rr.ResourceName):
				fail(kerr.InvalidTopicException, "not a topic's name")
			default:
				fail(kerr.UnknownTopicOrPartition, "there is no such topic")
			}
		case kmsg.ConfigResourceTypeBroker:
			switch rr.ResourceName {
			case strconv.Itoa(int(node)):
				sr.Configs = a.Describe(nil, rr.ConfigNames)
			case "":
				// Settings for all brokers at run time: there are none.
			default:
				// Only the broker itself knows the configuration that it was started with.
				fail(kerr.InvalidRequest, "this is broker %d, and speaks for no other", node)
			}
		default:
			fail(kerr.InvalidRequest, "only topics and brokers have configurations here")
		}
		resp.Resources = append(resp.Resources, sr)
	}
	return resp
}
