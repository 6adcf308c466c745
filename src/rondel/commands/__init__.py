"""What each command of the command line does. One file each, imported when the command is given."""
