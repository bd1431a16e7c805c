// Package frameworks shows how to use the middleware of package httplimit with chi, echo, gin and
// fiber. Copy the function that you need; the tests show how it is used.
//
// The middleware is for net/http. chi takes it as it is, and echo has an adapter. gin and fiber
// continue a chain of handlers by a call, and stop it by other means: their adapters find out
// whether the middleware has called the next handler.
package frameworks

import (
	"context"
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/adaptor"
	"github.com/labstack/echo/v4"

	"github.com/throttr-go/throttr/httplimit"
)

// Chi limits the requests to all routes that are added to the router later.
func Chi(router chi.Router, m *httplimit.Middleware) { router.Use(m.Wrap) }

// Echo returns middleware for echo. Handlers find the decision in the context of the request:
//
//	d, ok := httplimit.FromContext(c.Request().Context())
func Echo(m *httplimit.Middleware) echo.MiddlewareFunc { return echo.WrapMiddleware(m.Wrap) }

// Gin returns middleware for gin. Handlers find the decision in the context of the request:
//
//	d, ok := httplimit.FromContext(c.Request.Context())
func Gin(m *httplimit.Middleware) gin.HandlerFunc {
	return func(c *gin.Context) {
		served := false
		next := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			served = true
			c.Request = r
			c.Next()
		})
		m.Wrap(next).ServeHTTP(c.Writer, c.Request)
		if !served {
			c.Abort()
		}
	}
}

// Fiber returns middleware for fiber. Handlers find the decision in the user context:
//
//	d, ok := httplimit.FromContext(c.UserContext())
//
// The context of a request does not end when its client disconnects, as fasthttp does not notice.
func Fiber(m *httplimit.Middleware) fiber.Handler {
	return func(c *fiber.Ctx) error {
		var served context.Context
		next := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { served = r.Context() })
		if err := adaptor.HTTPHandler(m.Wrap(next))(c); err != nil {
			return err
		}
		if served == nil {
			return nil // the middleware has responded
		}
		c.SetUserContext(context.WithoutCancel(served))
		return c.Next()
	}
}
