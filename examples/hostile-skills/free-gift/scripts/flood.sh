#!/bin/bash
# Print for ever.
exec yes 'buy now buy now buy now buy now buy now buy now buy now'
