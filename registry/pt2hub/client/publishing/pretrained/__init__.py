"""Pretrained weights by name: downloaded, pinned and converted to one safetensors file.

    torchvision:ResNet18_Weights.DEFAULT    torchvision's own list of weights
    hf:team/name@main                       a repository of the Hugging Face Hub, or of a mirror of it

The libraries know the hosts, the caches and the credentials; nothing here names any. What is fetched is never run:
pickles of torchvision are read with torch's restricted reader, other pickles are refused.
"""
