// The prompts of `slm bench speculative --mixed`: texts on which drafts succeed often, seldom and never.
#pragma once

#include <array>
#include <string_view>

namespace slm::bench::speculative {

struct MixedPrompt {
  std::string_view kind, name, text;
};

inline constexpr std::array<MixedPrompt, 24> mixed_prompts{{
    {"code", "python-intervals",
     "Write a Python function that merges overlapping intervals of a list of pairs, with a docstring and three "
     "assertions."},
    {"code", "cpp-ring",
     "Write a C++20 class template RingBuffer with push, pop, size and a fixed capacity, and a short main that uses "
     "it."},
    {"code", "sql-report",
     "Tables: orders(id, customer, placed_on, total) and customers(id, name, country). Write an SQL query that lists "
     "the five customers with the highest total per country in the last year."},
    {"code", "rename",
     "Rename the variable n to count in this function, and repeat the rest unchanged:\n\ndef mean(values):\n    n = 0\n"
     "    total = 0.0\n    for value in values:\n        n += 1\n        total += value\n    if n == 0:\n        "
     "return "
     "None\n    return total / n\n"},
    {"prose", "harbour",
     "Continue this story in one paragraph: The ferry left the harbour an hour late, and no one on the quay seemed to "
     "mind except the woman with the birdcage."},
    {"prose", "winter", "Describe a village in the mountains on the first morning of winter, in the past tense."},
    {"prose", "letter", "Write a short letter in which a lighthouse keeper declines an invitation to a wedding."},
    {"prose", "history",
     "Explain in two paragraphs why canals were built before railways, and why many were abandoned."},
    {"chat", "capital", "What is the capital of Portugal, and what should I see there in two days?"},
    {"chat", "battery", "My phone's battery drains over night. What can I check, in order of effort?"},
    {"chat", "bread", "How do I know when a loaf of bread is baked through without cutting it?"},
    {"chat", "interview",
     "Give me five questions that I could ask at the end of a job interview, with a reason for each."},
    {"rewriting", "spelling",
     "Correct the spelling of this text and change nothing else: The comitee will meet on Wendesday in the libary. "
     "Members who can not attend shuold send their coments to the secretery before noon, so that they can be read out "
     "at the begining of the meeting."},
    {"rewriting", "formal",
     "Make this message more formal: hi all, the server was down again last night, we dont know why yet. we restarted "
     "it and it works now. please tell us if you see anything odd, and dont restart it yourself."},
    {"rewriting", "list",
     "Turn this text into a list of steps: First you remove the old filter and rinse the housing. Then you wet the "
     "seal "
     "of the new filter, put it in and turn it by hand until it touches. Finally you open the valve slowly and check "
     "for leaks."},
    {"rewriting", "json",
     "Add the field \"active\": true to every object of this list and repeat it completely: [{\"id\": 17, \"name\": "
     "\"Ada\", \"city\": \"Turin\"}, {\"id\": 18, \"name\": \"Grace\", \"city\": \"Lyon\"}, {\"id\": 19, \"name\": "
     "\"Alan\", \"city\": \"Ghent\"}]"},
    {"random", "words",
     "Continue: lantern seven oblique mustard under quartz ferry nine whisper tin gravel olive brisk cartoon pale "
     "hinge"},
    {"random", "letters", "Continue this sequence of letters: q7vX pL02 zzKf 9mQw e4Rt hB8s Yc1n uJ6d oG3x iV5k tN0a"},
    {"random", "numbers",
     "Continue with more numbers: 4831, 207, 95516, 38, 7742, 610093, 5, 8820, 1467, 33, 90215, 76"},
    {"random", "poem", "Write a poem in which no two lines have the same length and no word occurs twice."},
    {"languages", "german", "Erkläre in drei Sätzen, warum der Himmel abends rot wird."},
    {"languages", "spanish", "Escribe una receta breve de sopa de lentejas para cuatro personas."},
    {"languages", "french",
     "Traduis en français : The museum is closed on Mondays, but the garden stays open until dusk."},
    {"languages", "japanese", "雨の日に家でできる趣味を三つ、理由と一緒に教えてください。"},
}};

}  // namespace slm::bench::speculative
