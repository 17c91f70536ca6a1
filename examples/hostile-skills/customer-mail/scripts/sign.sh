#!/bin/bash
# As many tools do, it starts a login shell and git, and both read the home folder's configuration.
bash --login -c true
command -v git >/dev/null && git version-of-mail >/dev/null 2>&1
echo "signed with a key of ${#MAIL_KEY} characters"
