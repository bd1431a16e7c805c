// Package fuzz holds the project's fuzz targets, one file for each family. It has
// no code of its own to import.
//
// What each family holds to, for any bytes:
//
//   - FuzzRequest8, 16, 32, 64 (request_test.go): decoding requests never panics.
//     A frame that decodes took at least one byte and no more than there were, and
//     encodes to the same bytes again. Feeding byte by byte comes to the same
//     frame or the same error as feeding at once, and codec.Decoder yields the
//     same frames and the same final error at the same offset.
//   - FuzzResponse8, 16, 32, 64 (response_test.go): the same for responses. The
//     kinds that are expected, one after the other, are fuzzed too, and EVENTs
//     may come between them. An answer in fragments comes to the same entries, or
//     the same error, where it is decoded as it arrives.
//   - FuzzServer8, 16, 32, 64 (server_test.go): the mock server takes the bytes from
//     a client, in pieces. It answers every request, in order; what is no request it
//     records as a violation and ends the connection. The next connection works.
//   - FuzzClient8, 16, 32, 64 (client_test.go): the client takes the bytes from a
//     server, in pieces, in answer to its probe or to a batch. Each request has the
//     answer that the bytes hold, or all of them an error that says that they may
//     have been executed; nothing hangs.
//   - FuzzSecondDecoderRequest, FuzzSecondDecoderResponse (second_test.go): package codec
//     and a decoder that was written from docs/protocol.md alone (naive_test.go) come to
//     the same: the same items in the same number of bytes, or both want more, or both
//     refuse. Each input is read at all four value sizes.
//   - FuzzHistory8, 16, 32, 64 (history_test.go): the mock server executes a history of
//     requests, with time that passes in between, and every answer is that of a map.
//   - FuzzKeys (keys_test.go): two keys of any bytes, and two pairs of entity and
//     operation, share a window on a server only if they are the same, and are never read
//     as requests.
//   - FuzzParseURL (url_test.go): what is read is within bounds, and comes to the same
//     when it is written again; what is refused leaves nothing.
//
// Package httplimit has fuzz targets of its own, for header fields, addresses and keys, and
// redisbackend has one for names in Redis.
//
// The seeds are frames from the encoders, and conversations recorded from a real
// server (mockserver/testdata). A go test without -fuzz runs every target on its seeds
// and on the inputs in testdata/fuzz that once failed. Go fuzzes one target at a
// time; this lists the targets, and runs one of them for a minute:
//
//	go test ./fuzz -list Fuzz
//	go test ./fuzz -run '^$' -fuzz '^FuzzRequest16$' -fuzztime 1m
package fuzz
