package config

// The limits on one file. They are far above what people write, and keep a wrong or hostile file
// from costing memory or time.
const (
	// MaxFileSize is how large one file may be, in bytes.
	MaxFileSize = 4 << 20
	// MaxDepth is how deep values may nest within a document.
	MaxDepth = 64
	// MaxAliasSize is about how many bytes a file's YAML aliases may stand for, in sum.
	MaxAliasSize = 1 << 20
	// MaxDocuments is how many documents one file may hold.
	MaxDocuments = 50_000
	// MaxItems is how many items one list may have.
	MaxItems = 20_000
	// MaxProblems is how many problems of one file are reported; one more says that there are more.
	MaxProblems = 200
)
