package sink

// String is the class as a value of the label reason where the target gave none.
func (c Class) String() string {
	switch c {
	case ClassTransient:
		return "transient"
	case ClassPermanent:
		return "permanent"
	case ClassOverload:
		return "overload"
	case ClassRefused:
		return "refused"
	case ClassTooLarge:
		return "too_large"
	case ClassUnreadable:
		return "unreadable"
	default:
		return "invalid"
	}
}
