// Package completion makes the completion command, which cobra adds to every program, refuse what
// it does not know. As cobra makes it, it shows its help then, and ends as if all were well.
package completion
