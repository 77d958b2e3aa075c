# SPDX-License-Identifier: Apache-2.0
"""Mooncake's package name, over weir: mooncake.engine has TransferEngine, and there is no more of
Mooncake here."""
