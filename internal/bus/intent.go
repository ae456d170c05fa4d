package bus

// describe puts a decoding error into words without the value that caused it.
func describe(err error) string { return err.Error() }
