// Package intern gives equal lists the same pointer, so that comparable inputs can contain lists.
//
// Interned lists are immutable. A list stays interned as long as its pointer is in use.
package intern
