"""The Discord surface. `pip install '.[discord]'` in a checkout.

bot.py hears and answers; gate.py decides who is answered; context.py gathers what the model gets; fold.py, delivery.py
and outlet.py show the answer; questions.py asks; bridge.py offers slash commands to the model; slash.py has our own.
"""
