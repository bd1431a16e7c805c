// Package fuzz holds the fuzz targets of the module, one file for each family. It exports
// nothing.
//
// What each family checks, for any bytes:
//
//   - FuzzRequest8, 16, 32, 64 (request_test.go): decoding requests never panics. A frame
//     that decodes is at least one byte long, no longer than the input, and encodes to the
//     same bytes. Decoding byte by byte has the same result as decoding at once.
//     codec.Decoder returns the same frames, and the same final error at the same offset.
//   - FuzzResponse8, 16, 32, 64 (response_test.go): the same for responses. The expected
//     kinds are fuzzed, too, and EVENTs can come between responses. For a response in
//     fragments, codec.FragmentDecoder returns the same entries or the same error.
//   - FuzzServer8, 16, 32, 64 (server_test.go): the mock server receives the bytes from a
//     client, in pieces. It responds to every request, in order. Bytes that are not a
//     request are a violation, and end the connection. The next connection works.
//   - FuzzClient8, 16, 32, 64 (client_test.go): the client receives the bytes from a server,
//     in pieces, as the response to its probe or to a batch. Either each request has the
//     response that the bytes hold, or all of them fail with an error that says that they
//     may have been executed. Nothing hangs.
//   - FuzzSecondDecoderRequest, FuzzSecondDecoderResponse (second_test.go): package codec
//     and a decoder that was written from docs/protocol.md alone (naive_test.go) agree. Both
//     read the same items in the same number of bytes, or both need more bytes, or both
//     fail. Each input is decoded at all four value sizes.
//   - FuzzHistory8, 16, 32, 64 (history_test.go): the mock server executes a history of
//     requests, with time that passes in between. Every response is that of a model, which
//     is a map.
//   - FuzzKeys (keys_test.go): two keys of any bytes, and two pairs of entity and operation,
//     share a window on a server only if they are the same, and are never taken for
//     requests.
//   - FuzzParseURL (url_test.go): a Config is within its bounds, and is the same when it is
//     parsed again from its URL. An error comes without a Config.
//
// Package httplimit has fuzz targets for header fields, addresses and keys, and package
// redisbackend has one for names in Redis.
//
// The seeds are frames from the encoders, and conversations recorded from a real server
// (mockserver/testdata). Without -fuzz, go test runs every target on its seeds, and on the
// inputs in testdata/fuzz that once failed. Go fuzzes one target at a time. To list the
// targets, and to run one of them for a minute:
//
//	go test ./fuzz -list Fuzz
//	go test ./fuzz -run '^$' -fuzz '^FuzzRequest16$' -fuzztime 1m
package fuzz
