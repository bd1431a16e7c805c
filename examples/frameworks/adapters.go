// Package frameworks shows how to limit requests with chi, echo, gin, fiber and connect. Copy the function
// that you need; the tests show how it is used.
//
// chi and echo take the middleware of package httplimit. The others have an adapter made of package
// admission: an adapter for another framework looks like them. Handlers find the decision with
// admission.FromContext in the context of their request.
package frameworks

import (
	"context"
	"errors"
	"maps"

	"connectrpc.com/connect"
	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/gofiber/fiber/v2"
	"github.com/labstack/echo/v4"

	"github.com/throttr-go/throttr/admission"
	"github.com/throttr-go/throttr/httplimit"
)

// Chi limits the requests to all routes that are added to the router later.
func Chi(router chi.Router, m *httplimit.Middleware) { router.Use(m.Wrap) }

// Echo returns middleware for echo. The error of a handler becomes a response inside, so that Config.GiveBack gets its
// status: with echo.WrapMiddleware alone, it is 200.
func Echo(m *httplimit.Middleware) echo.MiddlewareFunc {
	wrap := echo.WrapMiddleware(m.Wrap)
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return wrap(func(c echo.Context) error {
			if err := next(c); err != nil {
				c.Error(err)
			}
			return nil
		})
	}
}

// Request returns what a Gate decides on, by a request of a framework: its address, user, plan. Its Keys are for limits
// that have others. With an empty Plan, a request is not limited.
type Request[R any] func(r R) admission.Request

// Gin returns middleware for gin.
func Gin(gate *admission.Gate, request Request[*gin.Context]) gin.HandlerFunc {
	return func(c *gin.Context) {
		d := gate.Admit(c.Request.Context(), request(c))
		defer d.Done()
		d.AddFields(c.Writer.Header().Add)
		if v := d.Verdict(); v != admission.Serve {
			c.String(v.HTTPStatus(), d.Text())
			c.Abort()
			return
		}
		of := c.Request
		c.Request = of.WithContext(d.Context())
		defer func() { of.MultipartForm = c.Request.MultipartForm }() // the server removes the files of its own Request
		c.Next()
	}
}

// Fiber returns middleware for fiber. Its handlers find the decision in c.UserContext(). A place in flight ends with the
// handler: a body that is streamed after it holds none.
func Fiber(gate *admission.Gate, request Request[*fiber.Ctx]) fiber.Handler {
	return func(c *fiber.Ctx) error {
		d := gate.Admit(c.UserContext(), request(c))
		defer d.Done()
		d.AddFields(c.Response().Header.Add)
		if v := d.Verdict(); v != admission.Serve {
			return c.Status(v.HTTPStatus()).SendString(d.Text())
		}
		c.SetUserContext(d.Context())
		return c.Next()
	}
}

// codes are those of connect.
var codes = map[admission.Verdict]connect.Code{
	admission.Deny: connect.CodeResourceExhausted, admission.Unavailable: connect.CodeUnavailable,
	admission.Misconfigured: connect.CodeInternal, admission.Canceled: connect.CodeCanceled,
}

// Connect returns an interceptor for the unary methods of a connect service.
func Connect(gate *admission.Gate, request Request[connect.AnyRequest]) connect.UnaryInterceptorFunc {
	return func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			d := gate.Admit(ctx, request(req))
			defer d.Done()
			if v := d.Verdict(); v != admission.Serve {
				err := connect.NewError(codes[v], errors.New(d.Text()))
				d.AddFields(err.Meta().Add)
				return nil, err
			}
			res, err := next(d.Context(), req)
			var failed *connect.Error
			switch {
			case err == nil:
				d.AddFields(res.Header().Add)
			case errors.As(err, &failed):
				failed = clone(failed)
				d.AddFields(failed.Meta().Add)
				err = failed
			}
			return res, err
		}
	}
}

// clone returns a copy of an error, whose fields can be added to: a service may return the same error to all.
func clone(e *connect.Error) *connect.Error {
	own := connect.NewError(e.Code(), e.Unwrap())
	for _, detail := range e.Details() {
		own.AddDetail(detail)
	}
	maps.Copy(own.Meta(), e.Meta().Clone())
	return own
}
