"""Programs and cases as data, the strategies that draw them and the oracles that judge them."""
