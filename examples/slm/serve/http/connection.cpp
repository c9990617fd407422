#include "http/connection.hpp"

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <utility>

#include "http/random_hex.hpp"
#include "http/system.hpp"

namespace serve {
namespace {

using boost::system::error_code;

// Kernel buffer for an answer whose client does not read; a larger one would waste memory.
constexpr int send_buffer_bytes = 128 << 10;

// An interim answer that HTTP/1.1 clients skip if they did not request it.
constexpr std::string_view go_on = "HTTP/1.1 100 Continue\r\n\r\n";

}  // namespace

std::string ServerState::error_body(int status, std::string_view message) const {
  return options.error_body ? options.error_body(status, message) : std::string(message);
}

std::string ServerState::unavailable() const {
  std::string bytes;
  AnswerWriter::Form form;
  form.headers = options.cors.headers({});
  AnswerWriter(bytes, std::move(form))
      .answer(503, "application/json", error_body(503, "The server has reached its maximum number of connections."),
              {{"Retry-After", "1"}});
  return bytes;
}

void Mailbox::put(std::shared_ptr<Wakeup> wakeup) {
  if (wakeup->pending.exchange(true)) return;
  const std::lock_guard lock(mutex_);
  if (!context_) return;
  woken_.push_back(std::move(wakeup));
  if (woken_.size() > 1) return;  // the posted handler will process it
  asio::post(*context_, [this] {
    for (const auto& woken : take()) {
      woken->pending = false;
      if (woken->connection) woken->connection->shared_from_this()->woken();
    }
  });
}

std::vector<std::shared_ptr<Wakeup>> Mailbox::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(woken_, {});
}

void Mailbox::close() {
  const std::lock_guard lock(mutex_);
  context_ = nullptr;
  woken_.clear();
}

Loop::Loop(ServerState& shared)
    : state(shared), mailbox(std::make_shared<Mailbox>(context_)), work_(context_.get_executor()), timer_(context_) {
  const auto& limits = state.options.limits;
  const auto shortest = std::min(
      {limits.head_time, limits.body_time, limits.idle_time, limits.silence, limits.write_time, limits.linger_time});
  period_ = std::clamp<HttpLimits::Time>(shortest / 4, std::chrono::milliseconds(10), std::chrono::seconds(1));
  tick();
}

void Loop::run() {
  for (;;) {
    try {
      context_.run();
      return;
    } catch (const std::exception&) {  // out of memory: the operation is undone, others continue
    }
  }
}

/// Function may close the connection that it is called with, and no other.
template <class Function>
void Loop::for_each(Function function) {
  for (auto next = connections_.begin(); next != connections_.end();) {
    const auto connection = (next++)->second;
    function(*connection);
  }
}

void Loop::tick() {
  if (closed_) return;
  for_each([now = Clock::now()](Connection& connection) { connection.tick(now); });
  timer_.expires_after(period_);
  timer_.async_wait([this](error_code) { tick(); });
}

void Loop::adopt(asio::ip::tcp::socket socket) {
  if (closed_) return;
  const auto connection = std::make_shared<Connection>(*this, std::move(socket));
  connections_.emplace(connection.get(), connection);
  ++state.connections;
  connection->start();
}

void Loop::close_waiting() {
  for_each([](Connection& connection) {
    if (connection.waiting()) connection.close();
  });
}

void Loop::close() {
  closed_ = true;
  for_each([](Connection& connection) { connection.close(); });
  timer_.cancel();
  work_.reset();
}

Connection::Connection(Loop& loop, asio::ip::tcp::socket socket) : loop_(loop), socket_(std::move(socket)) {}

void Connection::start() {
  guarded([this] {
    error_code ignored;
    socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
    socket_.set_option(asio::socket_base::send_buffer_size(send_buffer_bytes), ignored);
    socket_.non_blocking(true);
    since_ = Clock::now();
    advance();
  });
}

/// On lack of memory or a system error, this connection ends.
template <class Function>
void Connection::guarded(Function function) {
  if (closed_) return;
  try {
    function();
  } catch (const std::exception&) {
    close();
  }
}

/// Does all work that needs no waiting.
void Connection::advance() {
  for (;;) {
    send();
    if (closed_) return;
    if (exchange_ && poll_due_ && unsent() <= limits().unread_bytes) {
      poll();
    } else if (answer_ && answer_->ended() && unsent() == 0) {
      finish_answer();
    } else if (!answer_ && !lingering_ && !input_.empty()) {
      read_input();
    } else {
      break;
    }
  }
  if (input_ended_ && !answer_) return close();
  watch_input();
}

void Connection::read_input() {
  const bool fresh = !reader_;
  if (fresh) reader_ = std::make_unique<RequestReader>(limits());
  const auto before = reader_->state();
  input_.erase(0, reader_->feed(input_));
  if (input_.empty()) input_ = std::string();     // an idle connection holds no memory
  if (!reader_->begun()) return reader_.reset();  // empty lines do not extend the idle timeout
  if (fresh && reused_) since_ = Clock::now();
  count_body(reader_->body_bytes());
  switch (reader_->state()) {
    case RequestReader::State::head: break;
    case RequestReader::State::body:
      if (loop_.state.body_bytes > limits().all_body_bytes) {
        return refuse(503, "The server has reached its maximum amount of request data.");
      }
      if (before == RequestReader::State::head) {
        since_ = Clock::now();
        if (reader_->expects_continue()) output_ += go_on;
      }
      break;
    case RequestReader::State::complete: begin_answer(reader_->take()); break;
    case RequestReader::State::refused: refuse(reader_->refusal().status, reader_->refusal().message); break;
  }
}

void Connection::count_body(std::size_t bytes) { loop_.state.body_bytes += bytes - std::exchange(body_bytes_, bytes); }

void Connection::begin_answer(ReadRequest read) {
  if (read.request.id.empty()) read.request.id = random_hex();
  const CorsPolicy& cors = loop_.state.options.cors;
  open_answer({read.version_1_1, read.keep_alive, read.head_only, read.request.id, cors.headers(read.cross_origin)});
  if (loop_.state.draining) return refuse(503, "The server is shutting down.");
  if (read.request.method == "OPTIONS" && read.cross_origin.is_preflight() && cors.allows(read.cross_origin.origin)) {
    return answer_->answer(200, "", "", cors.preflight_headers(read.cross_origin));
  }
  wakeup_ = std::make_shared<Wakeup>();
  wakeup_->connection = this;
  poll_due_ = true;
  try {
    exchange_ = loop_.state.handler(std::move(read.request),
                                    [wakeup = wakeup_, mailbox = loop_.mailbox] { mailbox->put(wakeup); });
  } catch (const std::exception&) {
    fail();
  }
}

void Connection::open_answer(AnswerWriter::Form form) {
  reader_.reset();
  count_body(0);
  answer_.emplace(output_, std::move(form));
  ++loop_.state.requests;
  progress_ = Clock::now();
}

void Connection::refuse(int status, std::string_view message) {
  ++loop_.state.refused;
  if (!answer_) {
    AnswerWriter::Form form;
    form.headers = loop_.state.options.cors.headers(reader_ ? reader_->cross_origin() : CrossOrigin{});
    open_answer(std::move(form));
  }
  answer_->do_not_keep_alive();
  answer_->answer(status, "application/json", loop_.state.error_body(status, message));
}

void Connection::woken() {
  poll_due_ = true;
  guarded([this] { advance(); });
}

void Connection::poll() {
  poll_due_ = false;
  try {
    exchange_->poll(*answer_);
    note_answer();
  } catch (const std::exception&) {
    fail();
  }
}

void Connection::note_answer() {
  if (answer_->streaming() != streaming_) {
    streaming_ = answer_->streaming();
    streaming_ ? ++loop_.state.streams : --loop_.state.streams;
  }
  if (answer_->ended()) end_exchange();
}

/// Handles an exception of the handler or its exchange; the client gets an error answer unless the answer has begun.
void Connection::fail() {
  if (answer_->begun()) return close();
  end_exchange();
  answer_->do_not_keep_alive();
  answer_->answer(500, "application/json", loop_.state.error_body(500, "The server failed to answer."));
}

void Connection::end_exchange() {
  if (wakeup_) wakeup_->connection = nullptr;
  wakeup_.reset();
  exchange_.reset();
}

void Connection::drop_answer() {
  end_exchange();
  if (!answer_) return;
  if (std::exchange(streaming_, false)) --loop_.state.streams;
  --loop_.state.requests;
  answer_.reset();
}

void Connection::finish_answer() {
  const bool keep_alive = answer_->keep_alive() && !loop_.state.draining;
  drop_answer();
  reused_ = true;
  since_ = Clock::now();
  if (keep_alive) return;
  // Closing a connection with unread input would reset it, and the client might lose the answer.
  lingering_ = true;
  input_ = std::string();
  error_code ignored;
  socket_.shutdown(asio::socket_base::shutdown_send, ignored);
  if (input_ended_) close();
}

void Connection::tick(Clock::time_point now) {
  guarded([this, now] {
    const auto& limit = limits();
    if (lingering_) {
      if (now - since_ >= limit.linger_time) close();
    } else if (unsent() > 0 && now - progress_ >= limit.write_time) {
      ++loop_.state.slow_readers;
      close();
    } else if (exchange_ && input_full() && left()) {
      close();
    } else if (exchange_) {
      if (unsent() > 0 || now - progress_ < limit.silence) return;
      if (answer_->streaming() || input_ended_) show_life();
    } else if (reader_ && reader_->state() == RequestReader::State::body) {
      const auto earned = std::chrono::milliseconds(reader_->body_bytes() * 1000 / limit.body_bytes_per_second);
      if (now - since_ < limit.body_time + earned) return;
      refuse(408, "The body of the request did not arrive in time.");
      advance();
    } else if (reader_) {
      if (now - since_ < limit.head_time) return;
      refuse(408, "The head of the request did not arrive in time.");
      advance();
    } else if (!answer_) {
      if (now - since_ >= (reused_ ? limit.idle_time : limit.head_time)) close();
    }
  });
}

void Connection::close() {
  if (std::exchange(closed_, true)) return;
  drop_answer();
  reader_.reset();
  count_body(0);
  error_code ignored;
  socket_.close(ignored);
  --loop_.state.connections;
  loop_.forget(*this);
}

/// Sends all pending output in one call, as far as the system accepts it.
void Connection::send() {
  while (unsent() > 0 && !output_watched_ && !closed_) {
    error_code error;
    sent_ += socket_.write_some(asio::buffer(output_.data() + sent_, unsent()), error);
    if (error == asio::error::would_block) return watch_output();
    if (error) return close();
    progress_ = Clock::now();
  }
  if (unsent() > 0) return;
  output_ = std::string();
  sent_ = 0;
}

void Connection::watch_output() {
  output_watched_ = true;
  if (sent_ > output_.size() / 2) output_.erase(0, std::exchange(sent_, 0));
  socket_.async_wait(asio::socket_base::wait_write, [this, self = shared_from_this()](error_code) {
    output_watched_ = false;
    guarded([this] { advance(); });
  });
}

/// Also watches during an answer, to detect a closed connection; input meanwhile is bounded. After the end of input
/// only a reset can arrive.
void Connection::watch_input() {
  if (closed_ || input_watched_ || input_full()) return;
  input_watched_ = true;
  socket_.async_wait(input_ended_ ? asio::socket_base::wait_error : asio::socket_base::wait_read,
                     [this, self = shared_from_this()](error_code) {
                       input_watched_ = false;
                       guarded([this] { input_ended_ ? close() : receive(); });
                     });
}

/// Sends data outside the answer's content: keeps clients from closing silent streams, and detects half-closed clients
/// that are gone, since their system replies with a reset. HTTP/1.0 allows nothing before an answer, so such a client
/// counts as gone.
void Connection::show_life() {
  progress_ = Clock::now();
  if (answer_->streaming()) {
    exchange_->idle(*answer_);
    note_answer();
  } else if (answer_->version_1_1()) {
    output_ += go_on;
  } else {
    return close();
  }
  advance();
}

bool Connection::left() { return has_left(socket_.native_handle()); }

void Connection::receive() {
  error_code error;
  const auto most = loop_.buffer.size() - input_.size();
  const auto bytes = socket_.read_some(asio::buffer(loop_.buffer.data(), most), error);
  if (error == asio::error::would_block) return watch_input();
  if (error == asio::error::eof) {
    input_ended_ = true;  // the client is gone, or has sent everything and waits for answers
    if (exchange_ && unsent() == 0) return show_life();
  } else if (error) {
    return close();
  } else if (!lingering_) {
    input_.append(loop_.buffer.data(), bytes);
  }
  advance();
}

}  // namespace serve
