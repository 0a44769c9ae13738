"""Which network to train: contestants of equal size on many data sets, half of which are set aside (`radnet study`)."""
