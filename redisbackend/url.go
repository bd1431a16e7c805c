package redisbackend

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/redis/rueidis"
)

// parseURL is rueidis.ParseURL. No error has a part of the user and password, which can be at odd places of
// a URL that is malformed: all that is before the last @ may be one.
func parseURL(text string) (rueidis.ClientOption, error) {
	var none rueidis.ClientOption
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok || strings.ContainsAny(scheme, ":/?#@") {
		return none, errors.New("the URL has no scheme, want redis://, rediss:// or unix://")
	}
	at := strings.LastIndexByte(rest, '@')
	if strings.ContainsAny(rest[:at+1], "/?#") {
		return none, errors.New("a / ? # of the user or password of the URL, or an @ after its host, is not percent-encoded")
	}
	if _, err := rueidis.ParseURL(scheme + "://h"); err != nil {
		return none, err
	}
	if _, err := rueidis.ParseURL(scheme + "://" + rest[at+1:]); err != nil {
		// Without an @, what seems to be the port, or the path after it, may be a password.
		if errors.As(err, new(*url.Error)) || at < 0 && strings.Contains(rest, ":") {
			return none, errors.New("the host or port of the URL, or what follows, is malformed")
		}
		return none, err
	}
	option, err := rueidis.ParseURL(text)
	if err != nil {
		return none, errors.New("the user or password of the URL has a character that is not percent-encoded")
	}
	return option, nil
}

// connectError returns the error of an attempt to connect. The server may repeat the user and password, such
// as one that does not know AUTH.
func connectError(err error, option *rueidis.ClientOption) error {
	if response, ok := rueidis.IsRedisErr(err); ok {
		for _, secret := range []string{option.Username, option.Password} {
			if secret != "" && strings.Contains(response.Error(), secret) {
				err = errors.New("the server responded with an error that has the user or password")
			}
		}
	}
	return fmt.Errorf("redisbackend: can't connect: %w", err)
}
