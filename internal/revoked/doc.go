// Package revoked says from where workloads spoke that were revoked lately, so that agents can end the connections that
// their Envoys have with them.
//
// A List travels as one resource of discovery, of a type of ours, in protobuf's encoding:
//
//	message RevokedPeers { repeated Peer peers = 1; }
//	message Peer         { string address = 1; uint64 epoch = 2; }
package revoked
