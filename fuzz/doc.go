// Package fuzz holds the fuzz targets of the module, a file for each family. For any bytes:
//
//   - FuzzRequest16, FuzzResponse16: no decoder panics. What decodes encodes to the same bytes, and decoding byte by
//     byte has the same result.
//   - FuzzClient16: each request has the response that the bytes hold, or all fail and may have been executed.
//
// There is one for each value size, with its bits in the name. Packages httplimit and rediswindow have targets of their
// own. The seeds are frames from the encoders and recorded conversations; inputs that once failed are in
// testdata/fuzz.
package fuzz
