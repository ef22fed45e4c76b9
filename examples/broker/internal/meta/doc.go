// Package meta is what the cluster is: its brokers, topics and partitions at one moment
// (Image), and who decides about them (Controller).
package meta
