"""Judge and train: simulations, and the training of policies and provisioners.

What a cluster runs imports nothing from here.
"""
