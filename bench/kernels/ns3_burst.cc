// The burst on ns-3's core (its scheduler, without its devices). Reads the number of nodes and their parents;
// prints hops, the end in nanoseconds and the CPU seconds of the run.
//   textbook: an event for every arrival, every router delay and every receipt
//   lean:     one pending event per busy link, everything else by arithmetic
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <deque>
#include <string>
#include <vector>

#include "ns3/core-module.h"

using namespace ns3;

static int64_t sendNs, receiveNs, wireNs, hops = 0, ended = 0;
static const int64_t ROUTER_NS = 1000000;
static bool lean;

struct Link;

struct Station {
    std::vector<Link*> links;
    int64_t freeNs = 0;
    std::deque<int> inbox;
    bool receiving = false;
    void Receive();
    void Received();
    void Arrive(Link* from);
    void Route(Link* back);
};

struct Link {
    Station* target;
    Link* back;
    bool busy = false;
    std::deque<int64_t> queue;  // when each message may start
    void Offer(int64_t ready);
    void Done();
};

static int64_t NowNs() { return Simulator::Now().GetNanoSeconds(); }

void Link::Offer(int64_t ready) {
    if (busy) {
        queue.push_back(ready);
        return;
    }
    busy = true;
    Simulator::Schedule(NanoSeconds(ready + wireNs - NowNs()), &Link::Done, this);
}

void Link::Done() {
    ++hops;
    const int64_t now = NowNs();
    target->Arrive(back);
    if (queue.empty()) {
        busy = false;
        return;
    }
    const int64_t start = std::max(queue.front(), now);
    queue.pop_front();
    Simulator::Schedule(NanoSeconds(start + wireNs - now), &Link::Done, this);
}

void Station::Arrive(Link* from) {
    if (lean) {
        const int64_t now = NowNs();
        freeNs = std::max(freeNs, now) + receiveNs;
        ended = std::max(ended, freeNs);
        for (Link* link : links)
            if (link != from) link->Offer(now + ROUTER_NS);
        return;
    }
    Receive();
    if (links.size() > 1) Simulator::Schedule(NanoSeconds(ROUTER_NS), &Station::Route, this, from);
}

void Station::Route(Link* back) {
    for (Link* link : links)
        if (link != back) link->Offer(NowNs());
}

void Station::Receive() {
    if (receiving) {
        inbox.push_back(0);
        return;
    }
    receiving = true;
    Simulator::Schedule(NanoSeconds(receiveNs), &Station::Received, this);
}

void Station::Received() {
    ended = NowNs();
    if (inbox.empty()) {
        receiving = false;
        return;
    }
    inbox.pop_front();
    Simulator::Schedule(NanoSeconds(receiveNs), &Station::Received, this);
}

static void Start(std::vector<Station>* nodes) {
    for (Station& node : *nodes) {
        if (lean) node.freeNs = NowNs() + receiveNs;
        else node.Receive();
        for (Link* link : node.links) link->Offer(NowNs());
    }
}

int main(int argc, char** argv) {
    lean = argc > 1 && std::string(argv[1]) == "lean";
    int n;
    if (std::scanf("%d", &n) != 1) return 2;
    const int64_t size = 4 * n + 32;
    sendNs = (676000 + 235 * size) / 2;
    receiveNs = (1487200 + 517 * size) / 4;
    wireNs = 80 * size;
    std::vector<Station> nodes(n);
    for (int child = 0; child < n; ++child) {
        int parent;
        if (std::scanf("%d", &parent) != 1) return 2;
        if (parent < 0) continue;
        Link* down = new Link{&nodes[child], nullptr};
        Link* up = new Link{&nodes[parent], down};
        down->back = up;
        nodes[parent].links.push_back(down);
        nodes[child].links.push_back(up);
    }
    const clock_t start = clock();
    Simulator::Schedule(NanoSeconds(sendNs), &Start, &nodes);
    Simulator::Run();
    std::printf("%lld %lld %.6f\n", (long long)hops, (long long)ended, double(clock() - start) / CLOCKS_PER_SEC);
}
