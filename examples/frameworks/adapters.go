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

// Echo returns middleware for echo.
func Echo(m *httplimit.Middleware) echo.MiddlewareFunc { return echo.WrapMiddleware(m.Wrap) }

// Gin returns middleware for gin.
func Gin(gate *admission.Gate) gin.HandlerFunc {
	return func(c *gin.Context) {
		d := gate.Admit(c.Request.Context(), admission.Addr(c.Request.RemoteAddr), nil, 1)
		defer d.Done()
		d.SetFields(c.Header)
		if v := d.Verdict(); v != admission.Serve {
			c.String(v.HTTPStatus(), d.Text())
			c.Abort()
			return
		}
		c.Request = c.Request.WithContext(d.Context())
		c.Next()
	}
}

// Fiber returns middleware for fiber. Its handlers find the decision in c.UserContext().
func Fiber(gate *admission.Gate) fiber.Handler {
	return func(c *fiber.Ctx) error {
		d := gate.Admit(c.UserContext(), admission.Addr(c.Context().RemoteAddr().String()), nil, 1)
		defer d.Done()
		d.SetFields(c.Set)
		if v := d.Verdict(); v != admission.Serve {
			return c.Status(v.HTTPStatus()).SendString(d.Text())
		}
		c.SetUserContext(d.Context())
		return c.Next()
	}
}

// Connect returns an interceptor for the unary methods of a connect service.
func Connect(gate *admission.Gate) connect.UnaryInterceptorFunc {
	codes := map[admission.Verdict]connect.Code{
		admission.Deny: connect.CodeResourceExhausted, admission.Unavailable: connect.CodeUnavailable,
		admission.Misconfigured: connect.CodeInternal, admission.Canceled: connect.CodeCanceled,
	}
	return func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			d := gate.Admit(ctx, admission.Addr(req.Peer().Addr), nil, 1)
			defer d.Done()
			if v := d.Verdict(); v != admission.Serve {
				err := connect.NewError(codes[v], errors.New(d.Text()))
				d.SetFields(err.Meta().Set)
				return nil, err
			}
			res, err := next(d.Context(), req)
			if err == nil {
				d.SetFields(res.Header().Set)
			}
			return res, err
		}
	}
}
