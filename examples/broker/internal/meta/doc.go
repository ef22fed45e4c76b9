// Package meta holds the cluster's metadata: its brokers, topics and partitions at one moment
// (Image), and the Controller that changes them.
package meta
