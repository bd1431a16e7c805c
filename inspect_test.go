package throttr_test

import ()
