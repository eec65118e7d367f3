package admin

// LogLevel is the level of ashored's log: trace, debug, info, warn or error. Empty in a request: do
// not change it.
type LogLevel struct {
	Level string `json:"level"`
}
